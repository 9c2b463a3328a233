#include <fmt/format.h>

#include <cmath>

#include "io/plot/figure.h"
#include "io/plot/gnuplot.h"

namespace triax::io {

std::string heat_map_csv(const HeatMap& map) {
  std::string text = "column,row,value,column_text,row_text\n";
  for (size_t r = 0; r < map.rows.size(); ++r) {
    for (size_t c = 0; c < map.columns.size(); ++c) {
      if (!std::isfinite(map.values[r][c])) continue;
      text += fmt::format("{},{},{:.10g},\"{}\",\"{}\"\n", c, r, map.values[r][c], map.columns[c], map.rows[r]);
    }
  }
  return text;
}

std::string heat_map_gp(const HeatMap& map) {
  const auto ticks = [](const std::vector<std::string>& labels) {
    std::string text;
    for (size_t i = 0; i < labels.size(); ++i) {
      text += fmt::format("{}{} {}", i == 0 ? "" : ", ", gnuplot_text(labels[i]), i);
    }
    return text;
  };
  std::string text = gnuplot_head(map.name, map.title, map.notes);
  text += fmt::format("set xlabel {}\nset ylabel {}\nset cblabel {}\n", gnuplot_text(map.x_label),
                      gnuplot_text(map.y_label), gnuplot_text(map.value_label));
  text += fmt::format("set xtics ({}) scale 0\nset ytics ({}) scale 0\n", ticks(map.columns), ticks(map.rows));
  const std::string file = gnuplot_text(map.name + ".csv");
  // Statistics come before the ranges, which would clip them. Light to dark blue; the text of a cell is dark on light
  // and light on dark.
  text += fmt::format(
      "set palette defined (0 '#eef4fb', 0.5 '#7fb0dc', 1 '#08458a')\nset datafile separator ','\nunset key\n"
      "stats {} using 3 nooutput\nmiddle = (STATS_min + STATS_max) / 2\n"
      "if (STATS_max > STATS_min) set cbrange [STATS_min:STATS_max]\n",
      file);
  text += fmt::format("set xrange [-0.5:{}.5]\nset yrange [-0.5:{}.5]\n", map.columns.size() - 1, map.rows.size() - 1);
  const std::string label = fmt::format("(sprintf('%.{}f', $3))", map.digits);
  const std::string plot = fmt::format(
      "plot {0} using 1:2:(0.48):(0.46):3 with boxxyerror palette fs solid noborder notitle, \\\n"
      "  {0} using ($3 <= middle ? $1 : NaN):2:{1} with labels tc rgb '#10243a' notitle, \\\n"
      "  {0} using ($3 > middle ? $1 : NaN):2:{1} with labels tc rgb '#ffffff' notitle\n",
      file, label);
  return text + gnuplot_outputs(map.name, plot);
}

FigureFiles write_figure(const std::string& directory, const HeatMap& map, const std::vector<std::string>& head) {
  return write_plot(directory, map.name, heat_map_csv(map), heat_map_gp(map), head);
}

}  // namespace triax::io

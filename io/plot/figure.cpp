#include "io/plot/figure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "io/plot/gnuplot.h"

namespace triax::io {
namespace {

/// gnuplot splits at every separator, quoted or not.
std::string cell_text(std::string text) {
  std::replace(text.begin(), text.end(), '"', '\'');
  std::replace(text.begin(), text.end(), ',', ';');
  return text;
}

bool has_bars(const Figure& figure) {
  return std::any_of(figure.series.begin(), figure.series.end(),
                     [](const Series& s) { return s.look == SeriesLook::Bars; });
}

std::string scale_text(const char* axis, Scale scale) {
  if (scale == Scale::Linear) return {};
  return fmt::format("set logscale {} {}\n", axis, scale == Scale::Log2 ? 2 : 10);
}

/// Rows of the CSV whose first cell is the label, as x and y.
std::string pick(const std::string& label, const std::string& x, const std::string& y) {
  return fmt::format("(strcol(1) eq {} ? {} : NaN):{}", gnuplot_text(cell_text(label)), x, y);
}

std::string plot_words(const Figure& figure, const Series& series, int colour, int bar, int bars) {
  const std::string file = gnuplot_text(figure.name + ".csv");
  const double width = 0.8 / std::max(bars, 1);
  const std::string x = series.look == SeriesLook::Bars
                            ? fmt::format("column(2) + {:.4f}", (bar - (bars - 1) / 2.0) * width)
                            : std::string("column(2)");
  const std::string title = fmt::format("title {}", gnuplot_text(series.label));
  const std::string rgb = fmt::format("lc rgb '{}'", palette_colour(colour));
  std::string text;
  switch (series.look) {
    case SeriesLook::Formula:
      return fmt::format("{} using {} with lines {} lw 2 dt (8,6) {}", file, pick(series.label, x, "3"), rgb, title);
    case SeriesLook::Bars:
      text = fmt::format("{} using {}:({:.4f}) with boxes {} fs solid 0.85 border lc rgb '#ffffff' {}", file,
                         pick(series.label, x, "3"), width, rgb, title);
      break;
    case SeriesLook::Points:
      text = fmt::format("{} using {} with points {} pt {} ps 1.1 lw 2 {}", file, pick(series.label, x, "3"), rgb,
                         point_type(colour), title);
      break;
    case SeriesLook::LineAndPoints:
      text = fmt::format("{} using {} with linespoints {} lw 2 pt {} ps 0.9 {}", file, pick(series.label, x, "3"), rgb,
                         point_type(colour), title);
      break;
  }
  if (series.half_width.empty()) return text;
  return text + fmt::format(", \\\n  {} using {}:4 with yerrorbars lc rgb '#333333' lw 1.2 pt 0 notitle", file,
                            pick(series.label, x, "3"));
}

std::string plot_command(const Figure& figure) {
  int bars = 0;
  for (const Series& series : figure.series) bars += series.look == SeriesLook::Bars ? 1 : 0;
  std::string text = "plot ";
  int bar = 0, next = 0;
  for (const Series& series : figure.series) {
    const int colour = series.colour >= 0 ? series.colour : next++;
    text += (text.size() > 5 ? ", \\\n  " : "") + plot_words(figure, series, colour, bar, bars);
    bar += series.look == SeriesLook::Bars ? 1 : 0;
  }
  return text + "\n";
}

std::string tick_text(const Figure& figure) {
  if (!figure.categories.empty()) {
    std::string text = "set xtics (";
    for (size_t i = 0; i < figure.categories.size(); ++i) {
      text += fmt::format("{}{} {}", i == 0 ? "" : ", ", gnuplot_text(figure.categories[i]), i);
    }
    return text + fmt::format(")\nset xrange [-0.6:{:.1f}]\n", static_cast<double>(figure.categories.size()) - 0.4);
  }
  // The values themselves where there are few of them.
  std::vector<double> values;
  for (const Series& series : figure.series) {
    if (series.look != SeriesLook::Formula) values.insert(values.end(), series.x.begin(), series.x.end());
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (values.empty() || values.size() > 12 || figure.x_scale != Scale::Log2) return {};
  std::string text = "set xtics (";
  for (size_t i = 0; i < values.size(); ++i) text += fmt::format("{}{:.10g}", i == 0 ? "" : ", ", values[i]);
  const double pad = std::pow(values.back() / values.front(), 0.04) * 1.02;
  return text + fmt::format(")\nset xrange [{:.6g}:{:.6g}]\n", values.front() / pad, values.back() * pad);
}

}  // namespace

std::string figure_csv(const Figure& figure) {
  const bool errors =
      std::any_of(figure.series.begin(), figure.series.end(), [](const Series& s) { return !s.half_width.empty(); });
  std::string text = errors ? "series,x,y,ci95" : "series,x,y";
  if (!figure.categories.empty()) text += ",x_text";
  text += '\n';
  for (const Series& series : figure.series) {
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (!std::isfinite(series.y[i])) continue;
      text += fmt::format("{},{:.10g},{:.10g}", cell_text(series.label), series.x[i], series.y[i]);
      if (errors) {
        const bool has = i < series.half_width.size() && std::isfinite(series.half_width[i]);
        text += has ? fmt::format(",{:.10g}", series.half_width[i]) : ",";
      }
      const auto category = static_cast<size_t>(std::max(0.0, series.x[i]));
      if (!figure.categories.empty()) {
        text += fmt::format(",{}", cell_text(category < figure.categories.size() ? figure.categories[category] : ""));
      }
      text += '\n';
    }
  }
  return text;
}

std::string figure_gp(const Figure& figure) {
  std::string text = gnuplot_head(figure.name, figure.title, figure.notes);
  text += fmt::format("set xlabel {}\nset ylabel {}\n", gnuplot_text(figure.x_label), gnuplot_text(figure.y_label));
  text += scale_text("x", figure.x_scale) + scale_text("y", figure.y_scale);
  if (figure.y_scale == Scale::Linear && (figure.y_from_zero || has_bars(figure))) text += "set yrange [0:*]\n";
  text += tick_text(figure);
  text +=
      figure.series.size() > 1 ? "set key outside right top Left reverse samplen 2.5 spacing 1.25\n" : "unset key\n";
  text += "set grid ytics lc rgb '#e4e4e4' lw 1\nset datafile separator ','\nset datafile missing ''\n";
  return text + gnuplot_outputs(figure.name, plot_command(figure));
}

FigureFiles write_figure(const std::string& directory, const Figure& figure, const std::vector<std::string>& head) {
  return write_plot(directory, figure.name, figure_csv(figure), figure_gp(figure), head);
}

}  // namespace triax::io

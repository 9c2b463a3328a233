// A figure as data, and its four files: NAME.csv (the numbers), NAME.gp (gnuplot, reads the CSV), NAME.svg and NAME.pdf
// (made by gnuplot where it is installed).
#pragma once

#include <string>
#include <vector>

namespace triax::io {

enum class Scale { Linear, Log2, Log10 };

/// Measured points are marks, formulas are dashed lines without marks.
enum class SeriesLook { LineAndPoints, Points, Formula, Bars };

struct Series {
  std::string label;
  SeriesLook look = SeriesLook::LineAndPoints;
  std::vector<double> x = {}, y = {};   ///< points whose y is not finite are left out
  std::vector<double> half_width = {};  ///< of each y's interval; empty: no error bars; NaN: none for this point
  int colour = -1;                      ///< index of the palette, so that a formula has its measurement's; -1: the next
};

struct Figure {
  std::string name;  ///< of the files
  std::string title, x_label, y_label;
  Scale x_scale = Scale::Linear, y_scale = Scale::Linear;
  bool y_from_zero = true;                   ///< linear axes only
  std::vector<std::string> categories = {};  ///< labels at x = 0, 1, ...; empty: numbers
  std::vector<Series> series = {};
  std::vector<std::string> notes = {};  ///< what the figure shows, under it
};

/// values[row][column]; NaN: an empty cell. The first row is at the bottom.
struct HeatMap {
  std::string name, title, x_label, y_label, value_label;
  std::vector<std::string> columns = {}, rows = {};
  std::vector<std::vector<double>> values = {};
  int digits = 0;
  std::vector<std::string> notes = {};
};

struct FigureFiles {
  std::vector<std::string> paths;
  std::string missing;  ///< why there is no .svg and .pdf; empty: they are there
};

/// Writes the files into the directory. Without gnuplot, or where it fails, .csv and .gp alone. `head` stands at the
/// top of the CSV as '# ' lines. Throws RunTimeError where a file cannot be written.
FigureFiles write_figure(const std::string& directory, const Figure& figure, const std::vector<std::string>& head);
FigureFiles write_figure(const std::string& directory, const HeatMap& map, const std::vector<std::string>& head);

/// The two texts alone.
std::string figure_csv(const Figure& figure);
std::string figure_gp(const Figure& figure);
std::string heat_map_csv(const HeatMap& map);
std::string heat_map_gp(const HeatMap& map);

}  // namespace triax::io

// Line charts as inline SVG for HTML pages: colours come from the page's style sheet (classes s0, s1, ..., axis, grid),
// so that one picture serves light and dark pages and print.
#pragma once

#include <string>
#include <vector>

namespace triax::io {

enum class ChartLook { Line, Faint, Marks };

struct ChartSeries {
  std::string label;
  std::vector<double> x = {}, y = {};  ///< what is not finite is a gap
  ChartLook look = ChartLook::Line;
  int colour = 0;  ///< class sN
};

/// How the numbers of the y axis are written.
enum class NumberForm { Plain, Percent, Bytes };

struct Chart {
  std::string title, x_label, y_label;
  NumberForm form = NumberForm::Plain;
  bool y_from_zero = false;
  std::vector<ChartSeries> series = {};
};

/// About `count` round numbers (1, 2, 5 times a power of ten) that lie within [low, high].
std::vector<double> round_ticks(double low, double high, int count);
/// "12.5k", "3.2M", "4e-05"; percent: "12.5 %"; bytes: "1.5 GiB".
std::string short_number(double value, NumberForm form);
/// Running median over `window` values centred on each, which single spikes do not move; gaps are left out.
std::vector<double> running_median(const std::vector<double>& values, int window);

/// <svg class="chart" ...>; at most 600 points of a line are drawn (the least and the most of each interval).
/// Empty where no value is finite.
std::string chart_svg(const Chart& chart);

}  // namespace triax::io

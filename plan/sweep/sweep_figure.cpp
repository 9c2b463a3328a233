#include "plan/sweep/sweep_figure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "io/options/values.h"

namespace triax::plan {
namespace {

std::string setting_of(const SweepRow& row, const std::string& name) {
  for (const auto& [key, value] : row.settings) {
    if (key == name) return value;
  }
  return "-";
}

std::vector<std::string> values_of(const std::vector<SweepRow>& rows, const std::string& name) {
  std::vector<std::string> values;
  for (const SweepRow& row : rows) {
    const std::string value = setting_of(row, name);
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return values;
}

/// Numbers above zero whose neighbours are about a factor apart are drawn on a logarithmic axis.
bool is_geometric(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  if (values.size() < 3 || values.front() <= 0) return false;
  return values.back() / values.front() >= 8 && values[1] / values[0] >= 1.4;
}

bool all_numbers(const std::vector<std::string>& values) {
  return std::all_of(values.begin(), values.end(), [](const std::string& v) { return io::parse_real(v).has_value(); });
}

/// The first axis of several numbers, else the first of several values; empty where nothing varies.
std::string default_axis(const std::vector<SweepRow>& rows, const std::vector<std::string>& names) {
  std::string first;
  for (const std::string& name : names) {
    const std::vector<std::string> values = values_of(rows, name);
    if (values.size() < 2) continue;
    if (all_numbers(values)) return name;
    if (first.empty()) first = name;
  }
  return first;
}

}  // namespace

std::string axis_label(const std::string& metric) {
  static const std::map<std::string, std::string> kLabels = {{"tokens_per_s", "tokens per second, all ranks"},
                                                             {"step_ms", "step time in ms"},
                                                             {"bubble_fraction", "bubble, share of total"},
                                                             {"peak_memory_bytes", "peak memory per rank in bytes"},
                                                             {"comm_bytes", "bytes sent per step, all ranks"},
                                                             {"exposed_comm_ms", "exposed communication in ms"},
                                                             {"model_tflops", "TFLOP/s per rank"},
                                                             {"last_lm_loss", "last loss"},
                                                             {"span", "span in units of --cost"}};
  const auto found = kLabels.find(metric);
  return found == kLabels.end() ? metric : found->second;
}

namespace {

/// Throws ConfigError where x or y names nothing; returns x or its default, empty where there is nothing to draw.
std::string checked_axis(const std::vector<SweepRow>& rows, const std::string& x, const std::string& y) {
  const std::vector<std::string> names = setting_names(rows);
  if (!x.empty() && std::find(names.begin(), names.end(), x) == names.end()) {
    throw ConfigError(fmt::format("--x {}: is no axis of the sweep; must be one of {}", x, fmt::join(names, ", ")));
  }
  std::set<std::string> metrics;
  for (const SweepRow& row : rows) {
    for (const auto& [name, value] : row.metrics) metrics.insert(name);
  }
  if (metrics.empty()) return {};
  if (!metrics.contains(y)) {
    throw ConfigError(fmt::format("--y {}: is no metric of the sweep; must be one of {}", y, fmt::join(metrics, ", ")));
  }
  return x.empty() ? default_axis(rows, names) : x;
}

/// The settings that tell the lines apart.
std::string label_of(const SweepRow& row, const std::vector<SweepRow>& rows, const std::string& axis) {
  std::string label;
  for (const auto& [name, value] : row.settings) {
    if (name == axis || values_of(rows, name).size() < 2) continue;
    label += fmt::format("{}{} {}", label.empty() ? "" : ", ", name, value);
  }
  return label;
}

io::Series& series_named(io::Figure& figure, const std::string& label) {
  for (io::Series& series : figure.series) {
    if (series.label == label) return series;
  }
  const auto look = figure.categories.empty() ? io::SeriesLook::LineAndPoints : io::SeriesLook::Bars;
  figure.series.push_back({.label = label, .look = look});
  return figure.series.back();
}

}  // namespace

std::optional<io::Figure> figure_of(const std::vector<SweepRow>& rows, const std::string& x, const std::string& y) {
  const std::string axis = checked_axis(rows, x, y);
  if (axis.empty()) return std::nullopt;
  const std::vector<std::string> ticks = values_of(rows, axis);
  const bool numeric = all_numbers(ticks);
  std::vector<double> numbers;
  for (const std::string& tick : ticks) numbers.push_back(io::parse_real(tick).value_or(0));
  io::Figure figure{.name = "sweep",
                    .title = fmt::format("{} over {}", axis_label(y), axis),
                    .x_label = axis,
                    .y_label = axis_label(y)};
  if (!numeric) figure.categories = ticks;
  if (numeric && is_geometric(numbers)) figure.x_scale = io::Scale::Log2;
  size_t missing = 0;
  bool intervals = false;
  for (const SweepRow& row : rows) {
    if (!row.metrics.contains(y)) {
      ++missing;
      continue;
    }
    const auto place =
        static_cast<size_t>(std::find(ticks.begin(), ticks.end(), setting_of(row, axis)) - ticks.begin());
    const Estimate& value = row.metrics.at(y);
    io::Series& series = series_named(figure, label_of(row, rows, axis));
    series.x.push_back(numeric ? numbers[place] : static_cast<double>(place));
    series.y.push_back(value.mean);
    series.half_width.push_back(value.half_width.value_or(std::numeric_limits<double>::quiet_NaN()));
    intervals = intervals || value.half_width.has_value();
  }
  for (io::Series& series : figure.series) {
    if (!intervals) series.half_width.clear();
    if (series.label.empty()) series.label = axis_label(y);
  }
  if (intervals) figure.notes.emplace_back("Bars: 95 % confidence interval of the mean (Student's t).");
  if (missing > 0) {
    figure.notes.push_back(fmt::format("{} of {} points have no value; results.csv says why.", missing, rows.size()));
  }
  return figure;
}

}  // namespace triax::plan

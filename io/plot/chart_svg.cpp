#include "io/plot/chart_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "io/xml_text.h"

namespace triax::io {
namespace {

constexpr double kChartWidth = 480, kChartHeight = 250, kChartLeft = 64, kChartRight = 12, kChartTop = 14,
                 kChartBottom = 40;
constexpr size_t kMostPoints = 600;

struct Ends {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void take(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  /// Room around the values; one value alone stands in the middle.
  void widen(double share) {
    const double room = high > low ? share * (high - low) : std::max(std::abs(high) * 0.1, 1e-12);
    low -= room;
    high += room;
  }
};

struct Point {
  double x, y;
};

/// The least and the most of each of kMostPoints / 2 intervals, in order: spikes stay.
std::vector<Point> thinned(const ChartSeries& series) {
  std::vector<Point> points;
  const size_t n = std::min(series.x.size(), series.y.size());
  if (n <= kMostPoints) {
    for (size_t i = 0; i < n; ++i) points.push_back({series.x[i], series.y[i]});
    return points;
  }
  const size_t buckets = kMostPoints / 2;
  for (size_t b = 0; b < buckets; ++b) {
    const size_t begin = b * n / buckets, end = (b + 1) * n / buckets;
    size_t least = begin, most = begin;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(series.y[i])) continue;
      if (!std::isfinite(series.y[least]) || series.y[i] < series.y[least]) least = i;
      if (!std::isfinite(series.y[most]) || series.y[i] > series.y[most]) most = i;
    }
    for (const size_t i : {std::min(least, most), std::max(least, most)}) points.push_back({series.x[i], series.y[i]});
  }
  return points;
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {
    for (const ChartSeries& series : chart.series) {
      for (size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
        if (!std::isfinite(series.y[i])) continue;
        x_.take(series.x[i]);
        y_.take(series.y[i]);
      }
    }
  }

  std::string run() {
    if (x_.empty() || y_.empty()) return {};
    if (x_.low == x_.high) x_.widen(0);
    const double least = y_.low;
    y_.widen(0.06);
    const bool negative = least < 0;
    if (chart_.y_from_zero && !negative) y_.low = 0;
    if (chart_.y_from_zero && y_.high <= 0) y_.high = 1;
    out_ =
        fmt::format("<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", kChartWidth,
                    kChartHeight, escaped(fmt::format("{}: {} over {}", chart_.title, chart_.y_label, chart_.x_label)));
    axes();
    for (const ChartSeries& series : chart_.series) {
      series.look == ChartLook::Marks ? marks(series) : line(series);
    }
    return out_ + "</svg>";
  }

 private:
  double px(double x) const {
    return kChartLeft + (kChartWidth - kChartLeft - kChartRight) * (x - x_.low) / (x_.high - x_.low);
  }
  double py(double y) const {
    return kChartTop + (kChartHeight - kChartTop - kChartBottom) * (y_.high - y) / (y_.high - y_.low);
  }

  /// Round in the unit that they are written in.
  std::vector<double> y_ticks() const {
    double unit = 1;
    while (chart_.form == NumberForm::Bytes && y_.high / unit >= 1024) unit *= 1024;
    std::vector<double> ticks = round_ticks(y_.low / unit, y_.high / unit, 5);
    for (double& tick : ticks) tick *= unit;
    return ticks;
  }

  void axes() {
    auto out = std::back_inserter(out_);
    for (const double y : y_ticks()) {
      fmt::format_to(out, "<line class=\"grid\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/>", kChartLeft, py(y),
                     kChartWidth - kChartRight, py(y));
      fmt::format_to(out, "<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kChartLeft - 6,
                     py(y) + 4, short_number(y, chart_.form));
    }
    for (const double x : round_ticks(x_.low, x_.high, 6)) {
      fmt::format_to(out, "<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>", px(x),
                     kChartHeight - kChartBottom + 16, short_number(x, NumberForm::Plain));
    }
    fmt::format_to(out, "<line class=\"axis\" x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\"/>", kChartLeft,
                   kChartHeight - kChartBottom, kChartWidth - kChartRight);
    fmt::format_to(out, "<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                   (kChartLeft + kChartWidth - kChartRight) / 2, kChartHeight - 6, escaped(chart_.x_label));
  }

  void line(const ChartSeries& series) {
    std::string path;
    bool down = false;
    for (const Point& p : thinned(series)) {
      if (!std::isfinite(p.y)) {
        down = false;
        continue;
      }
      fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", down ? "L" : "M", px(p.x), py(p.y));
      down = true;
    }
    out_ += fmt::format("<path class=\"line s{}{}\" d=\"{}\"/>", series.colour,
                        series.look == ChartLook::Faint ? " faint" : "", path);
  }

  void marks(const ChartSeries& series) {
    for (const Point& p : thinned(series)) {
      if (!std::isfinite(p.y)) continue;
      out_ +=
          fmt::format("<circle class=\"mark s{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"><title>{}: {}</title></circle>",
                      series.colour, px(p.x), py(p.y), escaped(series.label), short_number(p.y, chart_.form));
    }
  }

  const Chart& chart_;
  Ends x_, y_;
  std::string out_;
};

}  // namespace

std::vector<double> round_ticks(double low, double high, int count) {
  std::vector<double> ticks;
  if (!(high > low) || count < 1) return ticks;
  const double rough = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double ratio = rough / power;
  const double step = power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k)
    ticks.push_back(k * step + 0.0);  // no -0
  return ticks;
}

std::string short_number(double value, NumberForm form) {
  if (form == NumberForm::Percent) return fmt::format("{:.4g} %", 100 * value);
  struct Unit {
    double size;
    const char* name;
  };
  constexpr Unit kBytes[] = {{1099511627776.0, " TiB"}, {1073741824.0, " GiB"}, {1048576.0, " MiB"}, {1024.0, " KiB"}};
  constexpr Unit kPlain[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}};
  const double size = std::abs(value);
  if (form == NumberForm::Bytes) {
    for (const Unit& unit : kBytes) {
      if (size >= unit.size) return fmt::format("{:.4g}{}", value / unit.size, unit.name);
    }
    return fmt::format("{:.4g} B", value);
  }
  for (const Unit& unit : kPlain) {
    const double divisor = unit.size == 1e4 ? 1e3 : unit.size;
    if (size >= unit.size) return fmt::format("{:.4g}{}", value / divisor, unit.name);
  }
  return fmt::format("{:.4g}", size < 1e-12 ? 0 : value);
}

std::vector<double> running_median(const std::vector<double>& values, int window) {
  std::vector<double> medians, near;
  const auto n = static_cast<int64_t>(values.size());
  for (int64_t i = 0; i < n; ++i) {
    near.clear();
    for (int64_t k = std::max<int64_t>(0, i - window / 2); k <= std::min(n - 1, i + window / 2); ++k) {
      if (std::isfinite(values[static_cast<size_t>(k)])) near.push_back(values[static_cast<size_t>(k)]);
    }
    const auto middle = near.begin() + static_cast<std::ptrdiff_t>(near.size() / 2);
    std::nth_element(near.begin(), middle, near.end());
    medians.push_back(near.empty() ? std::numeric_limits<double>::quiet_NaN() : *middle);
  }
  return medians;
}

std::string chart_svg(const Chart& chart) { return Drawing(chart).run(); }

}  // namespace triax::io

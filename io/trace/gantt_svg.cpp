#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "io/trace/gantt.h"
#include "io/xml_text.h"

namespace triax::io {
namespace {

using parallel::OpKind;

constexpr double kGanttWidth = 1200, kGanttLeft = 60, kGanttTop = 40, kGanttRow = 26, kGanttBar = 20, kGanttBottom = 60;

struct Look {
  const char* fill;
  const char* name;
};

Look look_of(OpKind kind) {
  switch (kind) {
    case OpKind::Forward:
      return {"#4c78c8", "forward"};
    case OpKind::Backward:
      return {"#58a55c", "backward"};
    case OpKind::BackwardInput:
      return {"#58a55c", "input gradient"};
    case OpKind::BackwardWeight:
      return {"#e8953a", "weight gradient"};
    case OpKind::Recompute:
      return {"url(#hatch)", "recompute"};
    default:
      return {"#9a9a9a", "sums, norm, optimizer"};
  }
}

// Messages and loads have no width of their own in the picture.
bool is_drawn(const TimelineEvent& event) {
  return !parallel::is_send(event.kind) && !parallel::is_receive(event.kind) && event.kind != OpKind::LoadBatch &&
         event.stop_ps > event.start_ps;
}

class Picture {
 public:
  Picture(const Timeline& timeline, const SvgGanttOptions& options)
      : timeline_(timeline), options_(options), end_(std::max<int64_t>(end_ps(timeline), 1)) {
    for (const TimelineRank& rank : timeline.ranks) rows_.emplace(rank.rank, 0);
    int row = 0;
    for (auto& [rank, place] : rows_) place = row++;
  }

  std::string run() {
    const double height = kGanttTop + kGanttRow * static_cast<double>(rows_.size()) + kGanttBottom;
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n"
        "<defs><pattern id=\"hatch\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect width=\"4\" height=\"4\" fill=\"#ffffff\"/><rect width=\"2\" "
        "height=\"4\" fill=\"#4c78c8\"/></pattern></defs>\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n<text x=\"{2}\" y=\"20\" font-size=\"14\">{3}</text>\n",
        kGanttWidth + kGanttLeft + 20, height, kGanttLeft, escaped(options_.title));
    for (const auto& [rank, row] : rows_) {
      out_ +=
          fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kGanttLeft - 8, top(row) + 14, rank);
      out_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#dddddd\"/>\n",
                          kGanttLeft, top(row), kGanttWidth, kGanttBar);
    }
    for (const TimelineEvent& event : timeline_.events) {
      if (is_drawn(event)) bar(event);
    }
    axis(height);
    legend(height);
    return out_ + "</svg>\n";
  }

 private:
  double top(int row) const { return kGanttTop + kGanttRow * row; }
  double x(int64_t ps) const { return kGanttLeft + kGanttWidth * static_cast<double>(ps) / static_cast<double>(end_); }

  void bar(const TimelineEvent& e) {
    const double left = x(e.start_ps);
    const double width = x(e.stop_ps) - left;
    const double y = top(rows_.at(e.rank));
    out_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" stroke=\"#ffffff\" "
        "stroke-width=\"0.5\"><title>{}</title></rect>\n",
        left, y, width, kGanttBar, look_of(e.kind).fill, e.name);
    if (parallel::is_compute(e.kind) && width > 14) {
      out_ += fmt::format("<text x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n",
                          left + width / 2, y + 14, e.kind == OpKind::Recompute ? "#000000" : "#ffffff", e.micro_batch);
    }
  }

  // About ten ticks at 1, 2 or 5 times a power of ten.
  void axis(double height) {
    const double span = static_cast<double>(end_) / options_.unit_ps;
    const double rough = span / 10;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    const double step = power * (rough / power < 1.5 ? 1 : rough / power < 3.5 ? 2 : rough / power < 7.5 ? 5 : 10);
    const double y = height - kGanttBottom + 8;
    for (int i = 0; i * step <= span * (1 + 1e-9); ++i) {
      const double at = kGanttLeft + kGanttWidth * i * step / span;
      out_ += fmt::format(
          "<line x1=\"{0:.2f}\" y1=\"{1}\" x2=\"{0:.2f}\" y2=\"{2}\" stroke=\"#000000\"/>"
          "<text x=\"{0:.2f}\" y=\"{3}\" text-anchor=\"middle\">{4:.6g}</text>\n",
          at, y - 8, y - 3, y + 9, i * step);
    }
    out_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">time in {}</text>\n", kGanttLeft + kGanttWidth,
                        y + 24, escaped(options_.unit_name));
  }

  void legend(double height) {
    std::map<std::string, const char*> looks;
    for (const TimelineEvent& event : timeline_.events) {
      if (is_drawn(event)) looks.emplace(look_of(event.kind).name, look_of(event.kind).fill);
    }
    double left = kGanttLeft;
    for (const auto& [name, fill] : looks) {
      out_ += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>\n", left,
          height - 22, fill, left + 16, height - 12, name);
      left += 40 + 7 * static_cast<double>(name.size());
    }
  }

  const Timeline& timeline_;
  const SvgGanttOptions& options_;
  int64_t end_;
  std::map<int, int> rows_;
  std::string out_;
};

}  // namespace

std::string svg_gantt(const Timeline& timeline, const SvgGanttOptions& options) {
  return Picture(timeline, options).run();
}

}  // namespace triax::io

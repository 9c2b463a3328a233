#include "plan/report/layout_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "comm/process_grid.h"
#include "io/options/validate.h"
#include "io/plot/chart_svg.h"
#include "io/xml_text.h"

namespace triax::plan {
namespace {

constexpr double kBox = 30, kGap = 3, kLeft = 64, kTop = 46;
constexpr int kMostPositions = 8, kMostReplicas = 4, kMostTensor = 8;

/// "0-3", "0-1, 8-9" for the layers of a position, its chunks in turn; with the embedding and the head.
std::string drawn_layers(const parallel::LayerMap& map, int position) {
  std::string text;
  for (int chunk = 0; chunk < map.chunks; ++chunk) {
    const parallel::LayerRange& range = map.layers(position, chunk);
    if (range.size() == 0) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", range.begin);
    if (range.size() > 1) text += fmt::format("-{}", range.end - 1);
  }
  return text.empty() ? "no layers" : "layers " + text;
}

class Drawing {
 public:
  Drawing(const RunData& run, const io::RunOptions& options)
      : run_(run),
        options_(options),
        grid_(options.parallel.grid),
        positions_(std::min(grid_.pipeline, kMostPositions)),
        replicas_(std::min(grid_.data, kMostReplicas)),
        tensor_(std::min(grid_.tensor, kMostTensor)) {
    cell_ = std::max(104.0, tensor_ * (kBox + kGap) + 12);
    for (const std::string& host : run.hosts) hosts_.emplace(host, static_cast<int>(hosts_.size()));
  }

  std::string run() {
    const double width = kLeft + positions_ * (cell_ + 10) + (positions_ < grid_.pipeline ? 110 : 10);
    const double height = kTop + replicas_ * (kBox + 16) + (replicas_ < grid_.data ? 26 : 8);
    out_ = fmt::format(
        "<svg class=\"layout\" viewBox=\"0 0 {:.0f} {:.0f}\" style=\"max-width:{:.0f}px\" role=\"img\" "
        "aria-label=\"ranks by pipeline position, replica and tensor rank\">",
        width, height, width);
    heads();
    for (int d = 0; d < replicas_; ++d) row(d);
    if (positions_ < grid_.pipeline) {
      text(kLeft + positions_ * (cell_ + 10) + 4, kTop + 20, fmt::format("... {} positions", grid_.pipeline), "start");
    }
    if (replicas_ < grid_.data) {
      text(kLeft, kTop + replicas_ * (kBox + 16) + 14, fmt::format("... {} replicas", grid_.data), "start");
    }
    return out_ + "</svg>";
  }

 private:
  void text(double x, double y, const std::string& words, const char* anchor, const char* css = "tick") {
    out_ += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", css, x, y, anchor,
                        io::escaped(words));
  }

  void heads() {
    const parallel::LayerMap map = io::layer_map_of(options_);
    for (int p = 0; p < positions_; ++p) {
      const double middle = kLeft + p * (cell_ + 10) + cell_ / 2;
      text(middle, 16, fmt::format("stage {}", p), "middle", "head");
      text(middle, 33, drawn_layers(map, p), "middle");
    }
  }

  void row(int d) {
    const double y = kTop + d * (kBox + 16);
    text(kLeft - 10, y + kBox / 2 + 8, fmt::format("dp {}", d), "end");
    for (int p = 0; p < positions_; ++p) {
      const double x = kLeft + p * (cell_ + 10);
      out_ +=
          fmt::format("<rect class=\"cell\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"5\"/>", x,
                      y, cell_, kBox + 10);
      const double inset = (cell_ - tensor_ * (kBox + kGap) + kGap) / 2;
      for (int t = 0; t < tensor_; ++t) {
        const int rank = comm::rank_of(grid_, {t, 0, d, p});
        box(x + inset + t * (kBox + kGap), y + 5, rank);
      }
    }
  }

  void box(double x, double y, int rank) {
    const auto place = static_cast<size_t>(rank);
    const std::string host = place < run_.hosts.size() ? run_.hosts[place] : "";
    const int colour = hosts_.contains(host) ? hosts_.at(host) % 8 : 0;
    out_ += fmt::format(
        "<rect class=\"rank f{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" rx=\"3\">"
        "<title>rank {} on {}</title></rect>",
        colour, x, y, kBox, kBox, rank, io::escaped(host));
    text(x + kBox / 2, y + kBox / 2 + 4, std::to_string(rank), "middle", "number");
  }

  const RunData& run_;
  const io::RunOptions& options_;
  const comm::GridShape& grid_;
  int positions_, replicas_, tensor_;
  double cell_ = 0;
  std::map<std::string, int> hosts_;
  std::string out_;
};

}  // namespace

std::string layout_svg(const RunData& run) {
  if (!run.resolved) return {};
  return Drawing(run, *run.resolved).run();
}

}  // namespace triax::plan

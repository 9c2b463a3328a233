#include "plan/ablation/common.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "plan/sweep/environment.h"

namespace triax::plan {

std::vector<std::string> dimension_words(const Dimensions& d) {
  return {"--num-layers",
          std::to_string(d.layers),
          "--hidden-size",
          std::to_string(d.hidden),
          "--seq-length",
          std::to_string(d.seq),
          "--num-attention-heads",
          std::to_string(d.heads),
          "--vocab-size",
          std::to_string(d.vocab),
          "--max-position-embeddings",
          std::to_string(d.seq)};
}

std::vector<std::string> short_run(int steps) {
  return {"--mock-data",
          "--hidden-dropout",
          "0",
          "--attention-dropout",
          "0",
          "--lr",
          "1e-3",
          "--threads",
          "1",
          "--eval-iters",
          "0",
          "--no-tensorboard",
          "--no-log-throughput",
          "--train-iters",
          std::to_string(steps)};
}

std::vector<std::string> small_model() {
  std::vector<std::string> words = dimension_words({4, 256, 8, 128, 1024});
  words.insert(words.end(),
               {"--ffn-hidden-size", "640", "--swiglu", "--normalization", "RMSNorm", "--position-embedding-type",
                "rope", "--disable-bias-linear", "--untie-embeddings-and-output-weights"});
  const std::vector<std::string> rest = short_run(8);
  words.insert(words.end(), rest.begin(), rest.end());
  return words;
}

PointRequest real_point(std::vector<Setting> settings, std::vector<std::string> more) {
  PointRequest point{SweepMode::Real, small_model(), std::move(settings), 1};
  point.arguments.insert(point.arguments.end(), more.begin(), more.end());
  return point;
}

std::string against(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b) || b == 0) return "-";
  return fmt::format("{:+.1f} %", 100 * (a / b - 1));
}

std::string ms_text(double ms) { return std::isfinite(ms) ? fmt::format("{:.1f} ms", ms) : "-"; }
std::string mb_text(double bytes) { return std::isfinite(bytes) ? fmt::format("{:.3f} MB", bytes * 1e-6) : "-"; }

int cores() { return host_facts().cores; }

std::string cores_note(int most_ranks) {
  const int have = cores();
  if (most_ranks <= have) return fmt::format("{} cores, one per rank.", have);
  return fmt::format("{} cores: above {} ranks, ranks share a core, so that the best possible is what {} ranks reach.",
                     have, have, have);
}

void add_point(io::Series& series, double x, const AblationRow* row, const std::string& metric, double factor) {
  if (row == nullptr || !row->row.metrics.contains(metric)) return;
  const Estimate& value = row->row.metrics.at(metric);
  series.x.push_back(x);
  series.y.push_back(value.mean * factor);
  const double none = std::numeric_limits<double>::quiet_NaN();
  // All or none, so that the lists stay as long as each other.
  if (value.half_width || !series.half_width.empty()) {
    series.half_width.resize(series.x.size() - 1, none);
    series.half_width.push_back(value.half_width ? *value.half_width * factor : none);
  }
}

}  // namespace triax::plan

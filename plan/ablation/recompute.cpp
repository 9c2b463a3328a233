// Recomputation: what it saves in memory and costs in time.
#include <fmt/format.h>

#include <cmath>

#include "io/options/validate.h"
#include "model/counts.h"
#include "plan/ablation/common.h"
#include "plan/memory_report.h"

namespace triax::plan {
namespace {

constexpr const char* kKinds[] = {"none", "selective", "full"};

std::vector<PointRequest> recompute_points() {
  std::vector<PointRequest> all;
  for (const std::string kind : kKinds) {
    std::vector<std::string> more = {"--micro-batch-size", "4",   "--global-batch-size",       "8",
                                     "--seq-length",       "256", "--max-position-embeddings", "256"};
    if (kind == "full") more.insert(more.end(), {"--recompute-method", "uniform", "--recompute-num-layers", "1"});
    all.push_back(real_point({{"recompute-granularity", kind}}, more));
  }
  return all;
}

/// Operations of a step with recomputation over those without.
double flops_ratio(const io::RunOptions& o) {
  const model::StepFlops flops = model::step_flops(o.model, o.batch.global_batch_size, o.model.vocab_size,
                                                   model::AttentionCount::CausalHalf, o.parallel.recompute.granularity,
                                                   model::recomputed_layers(o.parallel.recompute, io::layer_map_of(o)));
  return flops.hardware / flops.model;
}

double memory_formula_bytes(const io::RunOptions& o) {
  MemoryTerms terms;
  return static_cast<double>(memory_by_formula(o, terms)[0].total());
}

AblationResult conclude_recompute(const AblationData& data) {
  AblationResult result;
  io::Figure figure{.name = "recompute",
                    .title = "Recomputation: memory saved, time paid",
                    .x_label = "recompute-granularity",
                    .y_label = "relative to none",
                    .categories = {"none", "selective", "full"}};
  io::Series time{.label = "step time, measured", .look = io::SeriesLook::Bars},
      time_formula{.label = "step time, by operations", .look = io::SeriesLook::Bars};
  io::Series memory{.label = "peak memory, measured", .look = io::SeriesLook::Bars},
      memory_formula{.label = "peak memory, formula", .look = io::SeriesLook::Bars};
  const AblationRow* none = data.find({{"recompute-granularity", "none"}});
  std::string list;
  for (int place = 0; place < 3; ++place) {
    const AblationRow* one = data.find({{"recompute-granularity", kKinds[place]}});
    if (none == nullptr || one == nullptr || !one->options || !none->options || one->row.done == 0) continue;
    add_point(time, place, one, "step_ms", 1 / none->row.mean("step_ms"));
    add_point(memory, place, one, "peak_memory_bytes", 1 / none->row.mean("peak_memory_bytes"));
    time_formula.x.push_back(place);
    time_formula.y.push_back(flops_ratio(*one->options));
    memory_formula.x.push_back(place);
    memory_formula.y.push_back(memory_formula_bytes(*one->options) / memory_formula_bytes(*none->options));
    list += fmt::format("{}{}: time x{:.3f} (operations x{:.3f}), peak {:.1f} MiB (formula {:.1f})",
                        list.empty() ? "" : "; ", kKinds[place], time.y.back(), time_formula.y.back(),
                        one->row.mean("peak_memory_bytes") / 1048576, memory_formula_bytes(*one->options) / 1048576);
  }
  figure.series = {time, time_formula, memory, memory_formula};
  result.lines = {
      list + ".",
      "Selective recomputes attention's inside; with flash attention it is small already, in time and in memory."};
  figure.notes = result.lines;
  result.figures = {figure};
  return result;
}

}  // namespace

Ablation recompute_ablation() {
  return {"recompute", "recomputation none, selective, full: memory against time",
          "operations + 1/3 of the layers' with full (arXiv 2104.04473); memory by arXiv 2205.05198 section 4",
          recompute_points, conclude_recompute};
}

}  // namespace triax::plan

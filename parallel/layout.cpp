#include "parallel/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace triax::parallel {
namespace {

// Shares `layers` among `parts`, earlier parts take the remainder.
std::vector<int64_t> share(int64_t layers, int64_t parts) {
  std::vector<int64_t> counts(static_cast<size_t>(parts), layers / parts);
  for (int64_t i = 0; i < layers % parts; ++i) ++counts[static_cast<size_t>(i)];
  return counts;
}

std::vector<int64_t> counts_with_ends(int64_t num_layers, int pipeline, int chunks, int64_t first, int64_t last) {
  const int64_t middle = num_layers - first - last;
  const int64_t middle_positions = pipeline - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
  if (middle < 0 || (middle_positions == 0 && middle != 0) ||
      (middle_positions > 0 && middle < middle_positions * chunks)) {
    throw ConfigError(fmt::format(
        "--decoder-first-pipeline-num-layers {} and --decoder-last-pipeline-num-layers {} leave {} of {} layers for {} "
        "middle stages of {} chunk(s); each needs at least one layer: lower them to a sum of at most {}",
        first, last, middle, num_layers, middle_positions, chunks, num_layers - middle_positions * chunks));
  }
  for (const auto& [count, option] : {std::pair{first, "first"}, std::pair{last, "last"}}) {
    if (count > 0 && count < chunks) {
      throw ConfigError(fmt::format("--decoder-{}-pipeline-num-layers {}: {} chunks need at least {} layers", option,
                                    count, chunks, chunks));
    }
  }
  std::vector<int64_t> counts(static_cast<size_t>(pipeline * chunks), 0);
  const auto spread = [&](int begin, int positions, int64_t layers) {
    const std::vector<int64_t> parts = share(layers, int64_t{positions} * chunks);
    size_t next = 0;
    for (int v = 0; v < chunks; ++v) {
      for (int i = begin; i < begin + positions; ++i) counts[static_cast<size_t>(v * pipeline + i)] = parts[next++];
    }
  };
  const int begin = first > 0 ? 1 : 0;
  if (first > 0) spread(0, 1, first);
  if (last > 0) spread(pipeline - 1, 1, last);
  if (middle_positions > 0) spread(begin, static_cast<int>(middle_positions), middle);
  return counts;
}

}  // namespace

LayerMap make_layer_map(int64_t num_layers, int pipeline, int chunks, int64_t first, int64_t last,
                        const std::vector<int64_t>& list) {
  const int64_t stages = int64_t{pipeline} * chunks;
  std::vector<int64_t> counts;
  if (!list.empty()) {
    const int64_t sum = std::accumulate(list.begin(), list.end(), int64_t{0});
    if (static_cast<int64_t>(list.size()) != stages || sum != num_layers) {
      throw ConfigError(
          fmt::format("--pipeline-model-parallel-layout names {} stages with {} layers ({}); it must name {} stages "
                      "({} x {} chunks) "
                      "with {} layers, for example {}",
                      list.size(), sum, fmt::join(list, ","), stages, pipeline, chunks, num_layers,
                      fmt::join(share(num_layers, stages), ",")));
    }
    counts = list;
  } else if (first > 0 || last > 0) {
    if (pipeline < 2) {
      throw ConfigError("--decoder-first/last-pipeline-num-layers need --pipeline-model-parallel-size of at least 2");
    }
    counts = counts_with_ends(num_layers, pipeline, chunks, first, last);
  } else {
    if (num_layers < stages) {
      throw ConfigError(
          fmt::format("--num-layers {} is less than the {} virtual stages (pipeline {} x {} chunks): each holds at "
                      "least one layer; "
                      "use --num-layers {} or more, or fewer stages",
                      num_layers, stages, pipeline, chunks, stages));
    }
    counts = share(num_layers, stages);
  }
  LayerMap map{pipeline, chunks, {}};
  int64_t next = 0;
  for (const int64_t count : counts) {
    map.stage_layers.push_back({next, next + count});
    next += count;
  }
  return map;
}

LayerMap make_layer_map(int64_t num_layers, const LayerMap& like, int64_t first, int64_t last,
                        const std::vector<int64_t>& list) {
  if (like.placement != Placement::Looped && (first > 0 || last > 0)) {
    throw ConfigError(
        "--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers need a looped schedule: with this "
        "schedule name the layers of every virtual stage in --pipeline-model-parallel-layout");
  }
  LayerMap map = make_layer_map(num_layers, like.pipeline, like.chunks, first, last, list);
  map.placement = like.placement;
  map.listed_stages = like.listed_stages;
  return map;
}

int LayerMap::position_of(int stage) const {
  if (placement == Placement::Looped) return stage % pipeline;
  if (placement == Placement::VShape) return stage < pipeline ? stage : 2 * pipeline - 1 - stage;
  const auto at = std::find(listed_stages.begin(), listed_stages.end(), stage);
  return static_cast<int>(at - listed_stages.begin()) / chunks;
}

int LayerMap::chunk_of(int stage) const {
  if (placement == Placement::Looped) return stage / pipeline;
  if (placement == Placement::VShape) return stage < pipeline ? 0 : 1;
  const auto at = std::find(listed_stages.begin(), listed_stages.end(), stage);
  return static_cast<int>(at - listed_stages.begin()) % chunks;
}

}  // namespace triax::parallel

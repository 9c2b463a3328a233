// How one model is cut: which layers a (stage, chunk) holds, recomputation, sequence parallelism. Pure data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/process_grid.h"

namespace triax::parallel {

enum class RecomputeGranularity { None, Selective, Full };
enum class RecomputeMethod { Uniform, Block };

struct Recompute {
  RecomputeGranularity granularity = RecomputeGranularity::None;
  RecomputeMethod method = RecomputeMethod::Uniform;
  int64_t num_layers = 1;  ///< uniform: layers per checkpointed group; block: layers per chunk that are recomputed
};

/// Layers [begin, end) of the model, of one virtual stage.
struct LayerRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const LayerRange&) const = default;
};

/// stage_layers[v * p + i]: layers of chunk v on pipeline position i (looped placement, Narayanan 2021 section 2.2).
/// Virtual stage 0 also holds the embedding, the last one the final norm and head.
struct LayerMap {
  int pipeline = 1;
  int chunks = 1;
  std::vector<LayerRange> stage_layers;

  int virtual_stage(int position, int chunk) const { return chunk * pipeline + position; }
  int num_virtual_stages() const { return pipeline * chunks; }
  const LayerRange& layers(int position, int chunk) const {
    return stage_layers[static_cast<size_t>(virtual_stage(position, chunk))];
  }
  bool operator==(const LayerMap&) const = default;
};

/// Splits L layers over p * v virtual stages, earlier ones take the remainder (30 on 4: 8, 8, 7, 7). first and last
/// (0: not given) fix the layer counts of the first and last pipeline position (all chunks together, Megatron's
/// --decoder-first/last-pipeline-num-layers). `list` (empty: not given) names the count of each virtual stage.
/// Throws ConfigError with the nearest legal value.
LayerMap make_layer_map(int64_t num_layers, int pipeline, int chunks, int64_t first, int64_t last,
                        const std::vector<int64_t>& list);

}  // namespace triax::parallel

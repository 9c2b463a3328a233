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

/// Which virtual stage a chunk of a pipeline position is.
enum class Placement {
  Looped,  ///< chunk * p + position (Narayanan 2021 section 2.2)
  VShape,  ///< two chunks: position, then 2p - 1 - position on the way back (Qi 2024, arXiv 2405.15362)
  Listed,  ///< as a table says (a schedule read from a file)
};

/// stage_layers[s]: layers of virtual stage s. Virtual stage 0 also holds the embedding, the last one the final norm
/// and head.
struct LayerMap {
  int pipeline = 1;
  int chunks = 1;
  std::vector<LayerRange> stage_layers;
  Placement placement = Placement::Looped;
  std::vector<int> listed_stages = {};  ///< Listed: virtual stage of [position * chunks + chunk]

  int virtual_stage(int position, int chunk) const {
    if (placement == Placement::Looped) return chunk * pipeline + position;
    if (placement == Placement::VShape) return chunk == 0 ? position : 2 * pipeline - 1 - position;
    return listed_stages[static_cast<size_t>(position * chunks + chunk)];
  }
  int num_virtual_stages() const { return pipeline * chunks; }
  /// Pipeline position and chunk of a virtual stage.
  int position_of(int stage) const;
  int chunk_of(int stage) const;
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

/// The same with the stages placed as `like` places them (its layers are not read). Only the looped placement takes
/// `first` and `last`, since elsewhere a position's chunks are not evenly spread over the depth of the model.
LayerMap make_layer_map(int64_t num_layers, const LayerMap& like, int64_t first, int64_t last,
                        const std::vector<int64_t>& list);

}  // namespace triax::parallel

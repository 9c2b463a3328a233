// What a rank writes into a checkpoint and what it reads from one, from the sharding specs alone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/process_grid.h"
#include "io/checkpoint/piece.h"
#include "io/checkpoint/reader.h"
#include "train/trainer.h"

namespace triax::train {

enum class WithOptimizer { No, Yes };

/// A part of the flat arrays, and where its state lies: from element `begin` of that owned range of the optimizer.
struct StateRange {
  FlatRange flat;
  size_t piece = 0;
  int64_t begin = 0;
};

/// The part of `owned` (ascending, disjoint) that replica `index` of `count` equal ones
/// writes: cut evenly, so that all ranks of a replica group write.
std::vector<StateRange> replica_share(std::span<const FlatRange> owned, int index, int count);

/// Weights, and with the optimizer masters and moments, that this rank writes: every element of the model is written by
/// exactly one rank (tp replica 0, not the tied copy, its share of what dp replicates). Views, no copies.
std::vector<io::Piece> pieces_to_save(Trainer& trainer, comm::ProcessGrid& grid, WithOptimizer with_optimizer);

/// All that this rank keeps, replicas and tied copies included: masters (and with the optimizer moments) of what the
/// optimizer owns; a trainer without one: the weights of the whole store, into trainer.weight_source(). Masters come
/// from the kind `master` where the checkpoint has it, else from `weight`. trainer.weights_changed() after reading.
std::vector<io::Piece> pieces_to_load(Trainer& trainer, const io::CheckpointReader& reader,
                                      WithOptimizer with_optimizer);

/// Names and shapes of all tensors of a model, sorted by name.
struct TensorShape {
  std::string name;
  std::vector<int64_t> shape;
};
std::vector<TensorShape> model_tensors(const model::ModelConfig& model);

/// What of the model the checkpoint lacks, has in another shape, or has besides, each by name.
std::vector<std::string> tensor_differences(const io::CheckpointReader& reader, const model::ModelConfig& model);

}  // namespace triax::train

// `--check replicas`: what the sharding specs say is equal on several ranks must be equal to the last bit.
#pragma once

#include "comm/process_grid.h"
#include "parallel/parameter.h"
#include "train/gradient_sync.h"
#include "train/optimizer.h"

namespace triax::train {

/// Compares 64-bit hashes (8 bytes per tensor and array on the wire): all weights, masters and moments over dp, or what
/// is sharded over the replicas of the shards; tensors replicated over tp (norms, row-parallel biases, shared KV heads)
/// over their replicas; the tied word embedding over the first and last stage. Throws RunTimeError naming tensor, array
/// and ranks. Collective over world. `optimizer` may be null. Weights must be up to date (Trainer::gather_weights).
void check_replicas(const parallel::ParameterStore& store, const Optimizer* optimizer, const SyncPlan& plan,
                    comm::ProcessGrid& grid, kernels::Device& device);

}  // namespace triax::train

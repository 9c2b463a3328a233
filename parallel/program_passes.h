// Passes that turn a compute order into the whole step of one pipeline position. Each takes and returns a list of ops.
#pragma once

#include <vector>

#include "parallel/program.h"
#include "parallel/schedule.h"

namespace triax::parallel {

/// Before each Forward a LoadBatch: every stage needs positions and sample ids (rotary angles, dropout), the first also
/// tokens, the last targets.
std::vector<Op> insert_loads(const std::vector<Op>& ops);

/// Backward ops in two: the I where the B stood, its W at once (lag 0), or only after `lag` more I of its chunk; the
/// last ones at the end. The gradient of the input can then leave before the weight gradients are computed.
std::vector<Op> split_backward(const std::vector<Op>& ops, int lag);

/// Before each B or I a Recompute of the same micro-batch; it needs no message, so it can run while the gradient
/// travels.
std::vector<Op> insert_recompute(const std::vector<Op>& ops);

/// Around each compute op its receive and send. Messages travel along the pipeline axis from the position of a virtual
/// stage to that of the next one (gradients: the previous one); looped placement: offset +1 modulo p. Where both are on
/// the same position there is none (last position of the V, p = 1): the data stays where it is.
/// match = ((2 * virtual stage of the receiver + direction) * m + micro-batch), equal on both sides.
std::vector<Op> insert_messages(const std::vector<Op>& ops, const LayerMap& layers, int position,
                                int num_micro_batches);

/// After each receive the all-gather over tp that makes the message whole again: each tp rank sends 1/t of it
/// (Narayanan et al. 2021, arXiv 2104.04473 section 4.1 and figure 18).
std::vector<Op> insert_message_gathers(const std::vector<Op>& ops);

/// After the last weight gradient of a chunk the reductions of its blocks over dp; at the end, when all of these are
/// through, the partial sums over tp and the sum over the copies of a tied embedding.
struct GradientSums {
  bool tensor_partial = false;
  bool tied = false;              ///< this position takes part in the tied sum
  int tied_chunk = 0;             ///< chunk that holds the tied embedding
  std::vector<int> bucket_chunk;  ///< chunk of each block, in block order
};
std::vector<Op> append_gradient_sums(const std::vector<Op>& ops, int chunks, const GradientSums& sums);

/// The gathers as GatherTime says; `blocks` in the order of the shard plan.
std::vector<Op> insert_gathers(std::vector<Op> ops, std::vector<GatheredBlock> blocks, GatherTime time);

/// GradientNorm and OptimizerStep at the end.
std::vector<Op> append_optimizer(std::vector<Op> ops);

}  // namespace triax::parallel

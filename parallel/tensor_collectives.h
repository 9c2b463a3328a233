// The conjugate operators at the borders of a tensor-parallel region: g and its sequence-parallel form g-bar
// (Korthikanti et al. 2022, arXiv 2205.05198, figure 5).
#pragma once

#include "parallel/layer_context.h"

namespace triax::parallel {

/// Under sequence parallelism: all-gather of local [T/t, n] to [T, n]. Otherwise an empty buffer: local is whole
/// already.
Buffer gather_tokens(const LayerContext& context, Tensor local);

/// partial [T, cols] on each tp rank -> their sum: all-reduce in place, or under sequence parallelism reduce-scatter to
/// this rank's [T/t, cols]. One rank: returned as it is.
Buffer sum_over_tensor_ranks(const LayerContext& context, Buffer partial, int64_t cols);

}  // namespace triax::parallel

#include "parallel/tensor_collectives.h"

namespace triax::parallel {

Buffer gather_tokens(const LayerContext& c, Tensor local) {
  if (!c.sp()) return {};
  Buffer out = c.activation(c.tokens(), local.cols());
  c.tensor->all_gather(local, out.view(c.dtype, {c.tokens(), local.cols()})).wait();
  return out;
}

Buffer sum_over_tensor_ranks(const LayerContext& c, Buffer partial, int64_t cols) {
  if (c.t() == 1) return partial;
  const Tensor whole = partial.view(c.dtype, {c.tokens(), cols});
  if (!c.sp()) {
    c.tensor->all_reduce(whole, comm::ReduceOp::Sum).wait();
    return partial;
  }
  Buffer out = c.activation(c.local_tokens(), cols);
  c.tensor->reduce_scatter(whole, out.view(c.dtype, {c.local_tokens(), cols}), comm::ReduceOp::Sum).wait();
  return out;
}

}  // namespace triax::parallel

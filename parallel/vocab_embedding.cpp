#include "parallel/vocab_embedding.h"

#include <algorithm>

#include "parallel/tensor_collectives.h"

namespace triax::parallel {

using comm::ReduceOp;

VocabRange vocab_range(int64_t vocab_size, int64_t padded, int rank, int t) {
  ensure(padded % t == 0 && padded >= vocab_size, "vocab_range: padded vocabulary must be a multiple of tp");
  const int64_t rows = padded / t;
  const int64_t first = rows * rank;
  return {first, rows, std::clamp<int64_t>(vocab_size - first, 0, rows)};
}

Buffer VocabParallelEmbedding::forward(Tensor table, Tensor token) const {
  Buffer out = c_->activation(c_->tokens(), table.cols());
  const Tensor y = out.view(c_->dtype, {c_->tokens(), table.cols()});  // [T, h], zero where the id is elsewhere
  c_->device->embedding_forward(token, table, range_.first, kernels::Accumulate::No, y);
  return sum_over_tensor_ranks(*c_, std::move(out), table.cols());
}

void VocabParallelEmbedding::backward_weight(Tensor token, Tensor dy, Tensor dtable) const {
  const Buffer gathered = gather_tokens(*c_, dy);
  c_->device->embedding_backward(token, gathered ? gathered.view(c_->dtype, {c_->tokens(), dy.cols()}) : dy,
                                 range_.first, dtable);
}

VocabParallelCrossEntropy::Saved VocabParallelCrossEntropy::forward(Tensor logits, Tensor target, Tensor mask,
                                                                    Tensor loss_sum) const {
  const int64_t T = c_->tokens();
  // One buffer for both sums, so that they travel in one all-reduce.
  Saved saved{c_->statistic(T), c_->statistic(2 * T)};
  const Tensor row_max = saved.row_max.view(c_->state_dtype, {T});
  const Tensor both = saved.sum_exp.view(c_->state_dtype, {2 * T});
  const Tensor sum_exp = both.range(0, T);
  const Tensor target_logit = both.range(T, 2 * T);
  c_->device->cross_entropy_max(logits, range_.valid, row_max);
  if (c_->t() > 1) c_->tensor->all_reduce(row_max, ReduceOp::Max).wait();
  c_->device->cross_entropy_sum(logits, range_.first, range_.valid, target, row_max, sum_exp, target_logit);
  if (c_->t() > 1) c_->tensor->all_reduce(both, ReduceOp::Sum).wait();
  c_->device->cross_entropy_loss(row_max, sum_exp, target_logit, mask, loss_sum);
  return saved;
}

void VocabParallelCrossEntropy::backward(const Saved& saved, Tensor logits, Tensor target, Tensor mask,
                                         double seed_factor) const {
  const int64_t T = c_->tokens();
  c_->device->cross_entropy_backward(logits, range_.first, range_.valid, target,
                                     saved.row_max.view(c_->state_dtype, {T}), saved.sum_exp.view(c_->state_dtype, {T}),
                                     mask, seed_factor, c_->step);
}

}  // namespace triax::parallel

// Word embedding cut along the vocabulary (arXiv 1909.08053 section 3), and the cross-entropy that never gathers
// logits.
#pragma once

#include "parallel/layer_context.h"

namespace triax::parallel {

/// The vocabulary rows of one tp rank. Rows from `valid` on are padding: never looked up, never in the softmax.
struct VocabRange {
  int64_t first = 0;  ///< first global id
  int64_t rows = 0;   ///< padded rows on this rank
  int64_t valid = 0;  ///< true ids on this rank, 0 .. rows
};
/// padded = vocabulary padded to a multiple of t.
VocabRange vocab_range(int64_t vocab_size, int64_t padded, int rank, int t);

class VocabParallelEmbedding {
 public:
  VocabParallelEmbedding(const LayerContext& context, VocabRange range) : c_(&context), range_(range) {}
  /// token [T] -> y [T', h]: rows found here, summed over tp (all-reduce of T * h, or reduce-scatter).
  Buffer forward(Tensor table, Tensor token) const;
  /// dtable += dy at the token's row; dy [T', h] is all-gathered under sequence parallelism.
  void backward_weight(Tensor token, Tensor dy, Tensor dtable) const;

 private:
  const LayerContext* c_;
  VocabRange range_;
};

/// loss = log sum exp(logits) - logit of target, over logits cut along the vocabulary: an all-reduce of T maxima and
/// one of 2T sums (exponentials, target's logit) instead of a gather of T * V.
class VocabParallelCrossEntropy {
 public:
  VocabParallelCrossEntropy(const LayerContext& context, VocabRange range) : c_(&context), range_(range) {}
  /// Row statistics kept for the backward pass.
  struct Saved {
    Buffer row_max, sum_exp;
  };
  /// logits [T, V/t]; loss_sum[1] += sum over tokens of mask * loss, equal on all tp ranks.
  Saved forward(Tensor logits, Tensor target, Tensor mask, Tensor loss_sum) const;
  /// logits become their gradient times seed_factor * loss_scale, in place. No communication.
  void backward(const Saved& saved, Tensor logits, Tensor target, Tensor mask, double seed_factor) const;

 private:
  const LayerContext* c_;
  VocabRange range_;
};

}  // namespace triax::parallel

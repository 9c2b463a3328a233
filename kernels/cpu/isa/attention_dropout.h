// Random words of a row of an attention tile.
#pragma once

#include "kernels/cpu/isa/philox.h"
#include "kernels/cpu/kernel_table.h"

namespace triax::kernels::TRIAX_ISA {

/// Positions of the keys of one tile, and whether they are consecutive from a multiple of four (the usual case).
class KeyPositions {
 public:
  KeyPositions(const AttentionArgs& a, int64_t i, int64_t begin, int64_t count) : args_(&a), sample_(i), begin_(begin) {
    if (!a.dropout.active) return;
    first_ = at(0);
    consecutive_ = first_ % 4 == 0;
    for (int64_t t = 1; t < count && consecutive_; ++t) consecutive_ = at(t) == first_ + t;
  }

  /// words[t] decides about key t < count for query `row` of local head j; writes kAttentionBlock words at most.
  /// Returns null when the site is inactive.
  TRIAX_INLINE const uint32_t* words(int64_t row, int64_t j, int64_t count, uint32_t* words) const {
    const AttentionArgs& a = *args_;
    if (!a.dropout.active) return nullptr;
    const PhiloxWords base =
        dropout_counter(a.dropout.sample[sample_], a.dropout.position[row * a.batch + sample_], a.head_begin + j, 0);
    if (consecutive_) {
      philox_words(a.dropout.key, base, first_ / 4, count, words);
      return words;
    }
    for (int64_t t = 0; t < count; ++t) {
      PhiloxWords counter = base;
      counter.word[0] = static_cast<uint32_t>(at(t) / 4);
      words[t] = dropout_philox(counter, a.dropout.key).word[at(t) % 4];
    }
    return words;
  }

 private:
  int64_t at(int64_t t) const { return args_->dropout.position[(begin_ + t) * args_->batch + sample_]; }

  const AttentionArgs* args_;
  int64_t sample_, begin_, first_ = 0;
  bool consecutive_ = true;
};

}  // namespace triax::kernels::TRIAX_ISA

// Which samples a rank sees in which micro-batch. Pure arithmetic: no state, nothing to resume but consumed_samples.
#pragma once

#include <cstdint>

namespace triax::io {

/// Sizes of one step: global batch = micro_batch_size * data_parallel_size * num_micro_batches.
struct BatchShape {
  int64_t micro_batch_size = 1;    ///< b
  int64_t data_parallel_size = 1;  ///< d
  int64_t num_micro_batches = 1;   ///< m
  int64_t global_batch_size() const { return micro_batch_size * data_parallel_size * num_micro_batches; }
};

/// First sample id of micro-batch j of data-parallel rank r in the step that starts at consumed_samples; the micro-
/// batch is that id and the next b - 1. Ids of a step are consumed .. consumed + global - 1, cut into m chunks of b *
/// d, of which rank r takes [r b, (r + 1) b): the set of a step is the same in every layout, only who computes which
/// differs.
inline int64_t first_sample_of(const BatchShape& shape, int64_t consumed_samples, int64_t micro_batch,
                               int64_t dp_rank) {
  return consumed_samples + micro_batch * shape.micro_batch_size * shape.data_parallel_size +
         dp_rank * shape.micro_batch_size;
}

/// Samples that training, validation and test ask for (Megatron's rule): train_iters * global, or train_samples;
/// (train_iters / eval_interval + 1) * eval_iters * global; eval_iters * global.
struct SampleCounts {
  int64_t train = 0;
  int64_t valid = 0;
  int64_t test = 0;
  bool operator==(const SampleCounts&) const = default;
};
struct TrainLength {
  int64_t train_iters = 0;
  int64_t train_samples = 0;  ///< 0: train_iters * global
  int64_t global_batch_size = 1;
  int64_t eval_interval = 1000;
  int64_t eval_iters = 100;
};
SampleCounts sample_counts(const TrainLength& length);

}  // namespace triax::io

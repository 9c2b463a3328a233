#include "io/data/sampler.h"

namespace triax::io {

SampleCounts sample_counts(const TrainLength& length) {
  const int64_t batch = length.global_batch_size;
  const int64_t iters = length.train_samples > 0 ? length.train_samples / batch : length.train_iters;
  SampleCounts counts;
  counts.train = length.train_samples > 0 ? length.train_samples : length.train_iters * batch;
  counts.test = length.eval_iters * batch;
  const int64_t evaluations = length.eval_interval > 0 ? iters / length.eval_interval + 1 : 1;
  counts.valid = evaluations * counts.test;
  return counts;
}

}  // namespace triax::io

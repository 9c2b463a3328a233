// The compressed reduction of gradients over dp (--grad-compression): which tensors it takes, when it is in force, what
// it saves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "comm/compression/compressed_sum.h"
#include "kernels/device.h"
#include "parallel/parameter.h"

namespace triax::train {

/// The tensors of each block of the flat gradient, by flat offset, with the exemptions of the options.
std::vector<comm::CompressedBucket> compressed_buckets(const parallel::ParameterStore& store,
                                                       std::span<const parallel::FlatRange> blocks,
                                                       const comm::CompressionOptions& options);

/// In place of the plain sums of whole blocks. ZeRO 0: every rank of `group` (dp) gets the sums; ZeRO 1: at least its
/// own piece of each block. Throws ConfigError on a device that has no compression kernels.
class GradientCompression {
 public:
  GradientCompression(const comm::CompressionOptions& options, const parallel::ParameterStore& store,
                      std::span<const parallel::FlatRange> blocks, comm::Communicator& group, kernels::Device& device,
                      Arena& arena, comm::SumFor sum_for, uint64_t seed);

  const comm::CompressionOptions& options() const { return options_; }
  /// `step` counts steps tried, `update` is the 1-based number of the update that this step makes.
  void start_step(int64_t step, int64_t update);
  /// False during the warm-up: then blocks are to be summed plainly.
  bool active() const { return active_; }
  /// The gradients of this step stay local; what is summed is the momentum (1-bit Adam after its warm-up).
  bool leaves_gradients() const { return active_ && momentum_sum_ != nullptr; }
  void start(size_t block);
  void finish();

  /// 1-bit Adam: sums what stands in the compressed tensors of the flat gradient over dp, with the sign code.
  void sum_momentum();
  const std::vector<comm::CompressedBucket>& buckets() const { return buckets_; }

  /// What must be saved to go on (MemoryCategory::Optimizer).
  std::vector<comm::StateTensor> state() const;
  /// Over the steps so far, those before the warm-up's end included; of this rank.
  comm::CompressionTally tally() const;
  int64_t steps() const { return steps_; }
  /// Adds to the tally what was sent beside the sums.
  void count_sent(double bytes) { sent_bytes_ += bytes; }

 private:
  comm::CompressionOptions options_;
  kernels::Device* device_;
  std::vector<comm::CompressedBucket> buckets_;
  comm::CompressedSum sum_;
  std::unique_ptr<comm::BucketSum> momentum_sum_;
  double dense_bytes_per_step_ = 0;
  double dense_bytes_ = 0, sent_bytes_ = 0;
  int64_t step_ = 0, steps_ = 0;
  bool active_ = false;
};

/// One line for the end of a run: bytes, ratio, extra time; means over the ranks of `world` and the steps. Collective.
std::string describe_savings(const GradientCompression& compression, comm::Communicator& world);

}  // namespace triax::train

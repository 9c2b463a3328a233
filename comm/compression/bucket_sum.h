// Sums of gradient buckets over a group, each by its own kind of message.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "comm/communicator.h"
#include "comm/compression/bucket.h"
#include "kernels/compression.h"

namespace triax::comm {

/// What a rank needs at the end: all of the sum, or its own of n equal pieces of the bucket's flat range (ZeRO 1:
/// reduce-scatter).
enum class SumFor { EveryRank, PieceOwner };

/// What all kinds work with. `gradient` is the flat gradient, fp32 or fp64, in host memory of `device`.
struct CompressionContext {
  Communicator* group = nullptr;
  kernels::Device* device = nullptr;
  Arena* arena = nullptr;
  Tensor gradient;
};

/// start() takes the gradients of a bucket and begins to send; finish() waits and leaves the sum over the group in
/// their place (for pieces of a shard group: at least in this rank's piece). One bucket is under way at a time.
/// Collective, in the same order on all ranks.
class BucketSum {
 public:
  virtual ~BucketSum() = default;
  /// `step` counts training steps: it keys random numbers.
  virtual void start(size_t bucket, uint64_t step) = 0;
  virtual void finish() = 0;
  /// MemoryCategory::Optimizer; views, valid as long as this.
  virtual std::vector<StateTensor> state() const { return {}; }
  /// Bytes this rank sends for one sum of every bucket (ring equivalents).
  virtual double sent_bytes() const = 0;
  /// Seconds in kernels so far.
  virtual double kernel_s() const { return 0; }
};

/// The tensors with compressed = false. EveryRank: one all-reduce of those that are short, packed together, and one of
/// each long run, in place; sent: 2 (n-1)/n of their bytes. PieceOwner: one reduce-scatter of all, packed; half of
/// that.
class PlainSum final : public BucketSum {
 public:
  PlainSum(const CompressionContext& context, const std::vector<CompressedBucket>& buckets, SumFor sum_for);
  void start(size_t bucket, uint64_t step) override;
  void finish() override;
  double sent_bytes() const override;

 private:
  struct Run {
    int64_t begin = 0, end = 0;
    int owner = 0;  ///< PieceOwner: whose piece it lies in
  };
  struct Runs {
    std::vector<Run> packed, in_place;
    int64_t packed_elements = 0;
    std::vector<int64_t> counts;  ///< PieceOwner: packed elements of each rank
  };
  Runs runs_of(const CompressedBucket& bucket) const;
  Runs pieces_of(const std::vector<Run>& runs, const CompressedBucket& bucket) const;
  enum class Copy { IntoPack, IntoGradient };
  void copy_packed(Copy direction);
  CompressionContext context_;
  SumFor sum_for_;
  std::vector<Runs> runs_;  ///< [bucket]
  Buffer buffer_;
  Tensor pack_;
  size_t current_ = 0;
  std::vector<Work> in_flight_;
};

}  // namespace triax::comm

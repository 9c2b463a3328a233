// One kind of compressed sum for the tensors that are compressed, a plain one for the rest.
#pragma once

#include <memory>
#include <vector>

#include "comm/compression/bucket_sum.h"
#include "comm/compression/coded_sum.h"
#include "comm/compression/options.h"

namespace triax::comm {

/// Who has what at the end, and how the pieces lie (CodedSum; the other kinds leave the whole sum with every rank).
struct SumLayout {
  SumFor sum_for = SumFor::EveryRank;
  PieceCut cut = PieceCut::Blocks;
};

/// Sums every bucket by `options.method` (not None; OneBitAdam: only its plain part, the momentum is summed by
/// train/one_bit_adam.h) and counts what that saves.
class CompressedSum final : public BucketSum {
 public:
  CompressedSum(const CompressionContext& context, std::vector<CompressedBucket> buckets,
                const CompressionOptions& options, const SumLayout& layout, uint64_t seed);
  void start(size_t bucket, uint64_t step) override;
  void finish() override;
  std::vector<StateTensor> state() const override;
  double sent_bytes() const override;
  double kernel_s() const override { return coded_ ? coded_->kernel_s() : 0; }

 private:
  PlainSum plain_;
  std::unique_ptr<BucketSum> coded_;
};

/// The kind's sum of the compressed tensors alone.
std::unique_ptr<BucketSum> make_bucket_sum(const CompressionContext& context,
                                           const std::vector<CompressedBucket>& buckets,
                                           const CompressionOptions& options, const SumLayout& layout, uint64_t seed);

/// Clears `compressed` where the method does not take the tensor: fewer than min_elements in the whole model; PowerSGD:
/// vectors.
std::vector<CompressedBucket> with_exemptions(std::vector<CompressedBucket> buckets, const CompressionOptions& options);

/// Ring-equivalent bytes that this rank sends to sum the buckets' tensors uncompressed: all-reduce, or reduce-scatter
/// for PieceOwner.
double dense_bytes(const std::vector<CompressedBucket>& buckets, DType dtype, int ranks, SumFor sum_for);

}  // namespace triax::comm

// One kind of compressed sum for the tensors that are compressed, a plain one for the rest.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "comm/compression/bucket_sum.h"
#include "comm/compression/coded_sum.h"

namespace triax::comm {

enum class CompressionMethod : uint8_t { None, TopK, OneBitAdam, PowerSgd, Qsgd, Int8, BFloat16 };
/// "none", "topk", "onebit-adam", "powersgd", "qsgd", "int8", "bf16".
std::string_view name_of(CompressionMethod method);

struct CompressionOptions {
  CompressionMethod method = CompressionMethod::None;
  double density = 0.01;               ///< topk: share of the elements that is sent
  int64_t rank = 4;                    ///< powersgd
  int64_t levels = 127;                ///< qsgd: steps between 0 and the norm of a block, 1 to 127
  int64_t block_length = 0;            ///< elements with one scale; 0: 256, onebit-adam 2048
  std::optional<bool> error_feedback;  ///< not given: yes but for qsgd, which is unbiased without
  int64_t min_elements = 1024;         ///< tensors with fewer travel as they are
  int64_t warmup_steps = 100;          ///< onebit-adam: updates with full Adam
  bool exempt_embedding = true, exempt_head = true;
  ErrorFeedback feedback() const;
  int64_t block() const {
    return block_length > 0 ? block_length : method == CompressionMethod::OneBitAdam ? 2048 : 256;
  }
};

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

/// Clears `compressed` where the method does not take the tensor: fewer than min_elements; PowerSGD: vectors.
std::vector<CompressedBucket> with_exemptions(std::vector<CompressedBucket> buckets, const CompressionOptions& options);

/// Ring-equivalent bytes that this rank sends to sum the buckets' tensors uncompressed: all-reduce, or reduce-scatter
/// for PieceOwner.
double dense_bytes(const std::vector<CompressedBucket>& buckets, DType dtype, int ranks, SumFor sum_for);

}  // namespace triax::comm

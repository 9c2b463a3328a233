// Sums of block-coded gradients: every rank codes what it has for each piece, an all-to-all brings the pieces to their
// owners, who decode, add in rank order in the gradient's dtype, code the sum and all-gather it (1-bit Adam's two-sided
// scheme; ZeRO++ qgZ, arXiv 2306.10209, is the first half).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/compression/bucket_sum.h"
#include "comm/compression/code_pieces.h"

namespace triax::comm {

enum class ErrorFeedback { No, Yes };

struct CodedSumOptions {
  kernels::Codec codec = kernels::Codec::Int8;
  int64_t block_length = 256;
  int levels = 127;
  ErrorFeedback error_feedback = ErrorFeedback::Yes;
  SumFor sum_for = SumFor::EveryRank;
  PieceCut cut = PieceCut::Blocks;
  uint64_t seed = 0;
};

/// Sent per rank and bucket: (n-1) piece_bytes, twice for EveryRank (CodePieces). Residuals with error feedback: one of
/// every compressed element for what this rank sends, one of its own pieces' elements for the coded sums.
class CodedSum final : public BucketSum {
 public:
  CodedSum(const CompressionContext& context, const std::vector<CompressedBucket>& buckets,
           const CodedSumOptions& options);
  /// Returns while the all-to-all is under way.
  void start(size_t bucket, uint64_t step) override;
  void finish() override;
  std::vector<StateTensor> state() const override;
  double sent_bytes() const override;
  double kernel_s() const override { return kernel_s_; }
  const CodePieces& pieces(size_t bucket) const { return buckets_[bucket].pieces; }

 private:
  struct Bucket {
    CodePieces pieces;
    std::vector<kernels::CodeSegment> send;  ///< all pieces, `packed` within the message of all ranks
    std::vector<kernels::CodeSegment> own;   ///< this rank's piece, `state` in the residual of sums
  };
  void encode(const std::vector<kernels::CodeSegment>& segments, Tensor residual, Tensor packed, uint32_t sender);

  CompressionContext context_;
  CodedSumOptions options_;
  std::vector<Bucket> buckets_;
  struct Named {
    std::string name;
    int64_t begin, count, state;
  };
  std::vector<Named> names_;      ///< of residual_
  std::vector<Named> own_names_;  ///< of sum_residual_
  Buffer residual_buffer_, sum_residual_buffer_, send_buffer_, receive_buffer_;
  Tensor residual_, sum_residual_, send_, receive_;
  size_t current_ = 0;
  uint64_t step_ = 0;
  bool under_way_ = false;
  Work work_;
  double kernel_s_ = 0;
};

}  // namespace triax::comm

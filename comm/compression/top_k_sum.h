// Top-K sums with error feedback (Lin 2017, arXiv 1712.01887, without its momentum correction): every rank sends the
// largest elements of gradient + residual of each tensor; all add them in rank order.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/compression/coded_sum.h"

namespace triax::comm {

/// Elements sent of a tensor of n: density * n to the nearest, at least 1.
int64_t top_k_count(double density, int64_t n);

/// One all-gather per bucket of [values][int32 indices], filled up to 8 bytes. Sent per rank:
/// (n-1) K (size of an element + 4), K the elements of the bucket's tensors. At density 1 the sums have the bits of the
/// uncompressed ones that are taken in rank order.
class TopKSum final : public BucketSum {
 public:
  TopKSum(const CompressionContext& context, const std::vector<CompressedBucket>& buckets, double density,
          ErrorFeedback error_feedback);
  void start(size_t bucket, uint64_t step) override;
  void finish() override;
  std::vector<StateTensor> state() const override;
  double sent_bytes() const override;
  double kernel_s() const override { return kernel_s_; }

 private:
  struct Item {
    GradientTensor tensor;
    int64_t k = 0;
    int64_t state = 0;
  };
  struct Bucket {
    int64_t begin = 0, end = 0;
    std::vector<Item> items;
    int64_t k = 0, bytes = 0;
  };
  Tensor values(Tensor message, const Bucket& b) const;
  Tensor indices(Tensor message, const Bucket& b) const;

  CompressionContext context_;
  std::vector<Bucket> buckets_;
  std::vector<kernels::TopK> jobs_;
  Buffer residual_buffer_, send_buffer_, receive_buffer_;
  Tensor residual_, send_, receive_;
  size_t current_ = 0;
  bool under_way_ = false;
  Work work_;
  double kernel_s_ = 0;
};

}  // namespace triax::comm

// PowerSGD (Vogels 2019, arXiv 1905.13727, algorithms 1 and 2): a matrix M[n, m] = gradient + residual of each rank is
// sent as two factors of rank r, by one step of power iteration from the last step's factor.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/compression/coded_sum.h"

namespace triax::comm {

/// Elements of both factors of a matrix: min(r, n, m) (n + m).
int64_t power_sgd_elements(int64_t rank, int64_t rows, int64_t cols);

/// Compressed tensors must be matrices (GradientTensor::rows > 1). With orthonormal Q[r, m] (kept from the last step):
/// P[r, n] = Q M^T, all-reduced and made orthonormal; Q = P M; this rank sends P^T Q and keeps M - P^T Q; Q is
/// all-reduced and the gradient is P^T Q. Sent per rank: 2 (n-1)/n of r (n + m) elements. Where r reaches min(n, m) the
/// gradient is the uncompressed sum up to rounding.
class PowerSgdSum final : public BucketSum {
 public:
  PowerSgdSum(const CompressionContext& context, const std::vector<CompressedBucket>& buckets, int64_t rank,
              ErrorFeedback error_feedback, uint64_t seed);
  /// Returns while the all-reduce of P is under way.
  void start(size_t bucket, uint64_t step) override;
  void finish() override;
  std::vector<StateTensor> state() const override;
  double sent_bytes() const override;
  double kernel_s() const override { return kernel_s_; }

 private:
  struct Item {
    GradientTensor tensor;
    int64_t rank = 0;
    int64_t state = 0;  ///< in the residual
    int64_t p = 0;      ///< in the bucket's P
    int64_t q = 0;      ///< in all Q
  };
  struct Bucket {
    std::vector<Item> items;
    int64_t p_elements = 0, q_begin = 0, q_end = 0;
  };
  Tensor gradient(const Item& item) const;  ///< [n, m]
  Tensor residual(const Item& item) const;  ///< [n, m]; the gradient without error feedback
  Tensor p(const Item& item) const;         ///< [r, n]
  Tensor q(const Item& item) const;         ///< [r, m]

  CompressionContext context_;
  uint64_t seed_;
  std::vector<Bucket> buckets_;
  Buffer residual_buffer_, p_buffer_, q_buffer_;
  Tensor residual_, p_, q_;
  size_t current_ = 0;
  bool under_way_ = false;
  Work work_;
  double kernel_s_ = 0;
};

}  // namespace triax::comm

#include "comm/compression/power_sgd_sum.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "comm/ledger.h"

namespace triax::comm {
namespace {

using kernels::Transpose;

constexpr uint64_t kStreamOfP = 0x50;
constexpr uint64_t kStreamOfQ = 0x51;

}  // namespace

int64_t power_sgd_elements(int64_t rank, int64_t rows, int64_t cols) {
  return std::min({rank, rows, cols}) * (rows + cols);
}

PowerSgdSum::PowerSgdSum(const CompressionContext& context, const std::vector<CompressedBucket>& buckets, int64_t rank,
                         ErrorFeedback error_feedback, uint64_t seed)
    : context_(context), seed_(seed) {
  ensure(rank >= 1, "PowerSgdSum: rank");
  int64_t state = 0, q = 0, longest_p = 0;
  for (const CompressedBucket& bucket : buckets) {
    Bucket made;
    made.q_begin = q;
    for (const GradientTensor& t : bucket.tensors) {
      if (!t.compressed) continue;
      ensure(t.rows > 1 && t.cols >= 1 && t.count == t.rows * t.cols, "PowerSgdSum: " + t.name + " is not a matrix");
      made.items.push_back({t, std::min({rank, t.rows, t.cols}), state, made.p_elements, q});
      state += t.count;
      made.p_elements += made.items.back().rank * t.rows;
      q += made.items.back().rank * t.cols;
    }
    made.q_end = q;
    longest_p = std::max(longest_p, made.p_elements);
    buckets_.push_back(std::move(made));
  }
  if (q == 0) return;
  const DType dtype = context.gradient.dtype();
  const auto allocate = [&](Buffer& buffer, int64_t elements, MemoryCategory category) {
    buffer = context.arena->allocate(dtype, elements, category);
    const Tensor t = buffer.view(dtype, {elements});
    context.device->fill(t, 0);  // rows of zeros are made random by orthonormalize
    return t;
  };
  if (error_feedback == ErrorFeedback::Yes) residual_ = allocate(residual_buffer_, state, MemoryCategory::Optimizer);
  q_ = allocate(q_buffer_, q, MemoryCategory::Optimizer);
  p_ = allocate(p_buffer_, longest_p, MemoryCategory::Communication);
}

Tensor PowerSgdSum::gradient(const Item& item) const {
  const GradientTensor& t = item.tensor;
  return context_.gradient.range(t.begin, t.begin + t.count).reshape({t.rows, t.cols});
}
Tensor PowerSgdSum::residual(const Item& item) const {
  if (!residual_) return gradient(item);
  const GradientTensor& t = item.tensor;
  return residual_.range(item.state, item.state + t.count).reshape({t.rows, t.cols});
}
Tensor PowerSgdSum::p(const Item& item) const {
  return p_.range(item.p, item.p + item.rank * item.tensor.rows).reshape({item.rank, item.tensor.rows});
}
Tensor PowerSgdSum::q(const Item& item) const {
  return q_.range(item.q, item.q + item.rank * item.tensor.cols).reshape({item.rank, item.tensor.cols});
}

void PowerSgdSum::start(size_t bucket, uint64_t) {
  finish();
  current_ = bucket;
  const Bucket& b = buckets_[bucket];
  if (b.items.empty()) return;
  const Stopwatch watch;
  kernels::Device& device = *context_.device;
  for (const Item& item : b.items) {
    if (residual_) device.add(gradient(item), residual(item));
    device.compression()->orthonormalize(q(item), seed_, item.tensor.stream ^ kStreamOfQ);
    device.gemm({q(item), residual(item), p(item), Transpose::No, Transpose::Yes});
  }
  device.synchronize();
  kernel_s_ += watch.elapsed_s();
  work_ = context_.group->all_reduce(p_.range(0, b.p_elements), ReduceOp::Sum);
  under_way_ = true;
}

void PowerSgdSum::finish() {
  if (!under_way_) return;
  under_way_ = false;
  work_.wait();
  const Stopwatch watch;
  const Bucket& b = buckets_[current_];
  kernels::Device& device = *context_.device;
  for (const Item& item : b.items) {
    device.compression()->orthonormalize(p(item), seed_, item.tensor.stream ^ kStreamOfP);
    device.gemm({p(item), residual(item), q(item)});
    if (!residual_) continue;
    device.gemm({p(item), q(item), gradient(item), Transpose::Yes});
    device.scale(gradient(item), -1);
    device.add(gradient(item), residual(item));
  }
  device.synchronize();
  kernel_s_ += watch.elapsed_s();
  context_.group->all_reduce(q_.range(b.q_begin, b.q_end), ReduceOp::Sum).wait();
  const Stopwatch rest;
  for (const Item& item : b.items) device.gemm({p(item), q(item), gradient(item), Transpose::Yes});
  device.synchronize();
  kernel_s_ += rest.elapsed_s();
}

std::vector<StateTensor> PowerSgdSum::state() const {
  std::vector<StateTensor> all;
  for (const Bucket& b : buckets_) {
    for (const Item& item : b.items) {
      const GradientTensor& t = item.tensor;
      if (residual_) {
        all.push_back({kGradResidual, t.name, false, t.begin, t.begin + t.count,
                       residual_.range(item.state, item.state + t.count)});
      }
      all.push_back({kPowerSgdQ, t.name, true, t.begin, t.begin, q(item)});
    }
  }
  return all;
}

double PowerSgdSum::sent_bytes() const {
  int64_t elements = 0;
  for (const Bucket& b : buckets_) elements += b.p_elements + b.q_end - b.q_begin;
  const auto size = static_cast<int64_t>(size_of(context_.gradient.dtype()));
  return comm::sent_bytes(Operation::AllReduce, elements * size, context_.group->size());
}

}  // namespace triax::comm

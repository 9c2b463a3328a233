#include "comm/compression/top_k_sum.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "comm/ledger.h"

namespace triax::comm {

int64_t top_k_count(double density, int64_t n) {
  return std::clamp<int64_t>(std::llround(density * static_cast<double>(n)), 1, n);
}

TopKSum::TopKSum(const CompressionContext& context, const std::vector<CompressedBucket>& buckets, double density,
                 ErrorFeedback error_feedback)
    : context_(context) {
  const DType dtype = context.gradient.dtype();
  int64_t state = 0, longest = 0;
  size_t most = 0;
  for (const CompressedBucket& bucket : buckets) {
    Bucket made{bucket.begin, bucket.end, {}, 0, 0};
    for (const GradientTensor& t : bucket.tensors) {
      if (!t.compressed || t.count == 0) continue;
      made.items.push_back({t, top_k_count(density, t.count), state});
      made.k += made.items.back().k;
      state += t.count;
    }
    made.bytes = (made.k * static_cast<int64_t>(size_of(dtype) + 4) + 7) / 8 * 8;
    longest = std::max(longest, made.bytes);
    most = std::max(most, made.items.size());
    buckets_.push_back(std::move(made));
  }
  jobs_.reserve(most);
  if (longest == 0) return;
  const auto allocate = [&](Buffer& buffer, DType type, int64_t elements, MemoryCategory category) {
    buffer = context.arena->allocate(type, elements, category);
    const Tensor t = buffer.view(type, {elements});
    context.device->fill(t, 0);
    return t;
  };
  if (error_feedback == ErrorFeedback::Yes) {
    residual_ = allocate(residual_buffer_, dtype, state, MemoryCategory::Optimizer);
  }
  send_ = allocate(send_buffer_, DType::UInt8, longest, MemoryCategory::Communication);
  receive_ = allocate(receive_buffer_, DType::UInt8, longest * context.group->size(), MemoryCategory::Communication);
}

Tensor TopKSum::values(Tensor message, const Bucket& b) const {
  return {message.data(), context_.gradient.dtype(), {b.k}};
}

Tensor TopKSum::indices(Tensor message, const Bucket& b) const {
  char* data = static_cast<char*>(message.data());
  return {data + b.k * static_cast<int64_t>(size_of(context_.gradient.dtype())), DType::Int32, {b.k}};
}

void TopKSum::start(size_t bucket, uint64_t) {
  finish();
  current_ = bucket;
  const Bucket& b = buckets_[bucket];
  if (b.k == 0) return;
  const Stopwatch watch;
  const Tensor message = send_.range(0, b.bytes);
  const Tensor value = values(message, b), index = indices(message, b);
  jobs_.clear();
  int64_t used = 0;
  for (const Item& item : b.items) {
    const GradientTensor& t = item.tensor;
    jobs_.push_back({context_.gradient.range(t.begin, t.begin + t.count),
                     residual_ ? residual_.range(item.state, item.state + t.count) : Tensor(),
                     value.range(used, used + item.k), index.range(used, used + item.k), t.begin - b.begin});
    used += item.k;
  }
  context_.device->compression()->top_k(jobs_);
  context_.device->synchronize();
  kernel_s_ += watch.elapsed_s();
  work_ = context_.group->all_gather(message, receive_.range(0, b.bytes * context_.group->size()));
  under_way_ = true;
}

void TopKSum::finish() {
  if (!under_way_) return;
  under_way_ = false;
  work_.wait();
  const Stopwatch watch;
  const Bucket& b = buckets_[current_];
  const Tensor gradient = context_.gradient.range(b.begin, b.end);
  for (const Item& item : b.items) {
    context_.device->fill(context_.gradient.range(item.tensor.begin, item.tensor.begin + item.tensor.count), 0);
  }
  for (int r = 0; r < context_.group->size(); ++r) {
    const Tensor message = receive_.range(r * b.bytes, (r + 1) * b.bytes);
    // The first is stored, since 0 + -0 is not -0.
    context_.device->compression()->scatter(indices(message, b), values(message, b), gradient,
                                            r == 0 ? kernels::Decode::Store : kernels::Decode::Add);
  }
  context_.device->synchronize();
  kernel_s_ += watch.elapsed_s();
}

std::vector<StateTensor> TopKSum::state() const {
  std::vector<StateTensor> all;
  if (!residual_) return all;
  for (const Bucket& b : buckets_) {
    for (const Item& item : b.items) {
      const GradientTensor& t = item.tensor;
      all.push_back({kGradResidual, t.name, false, t.begin, t.begin + t.count,
                     residual_.range(item.state, item.state + t.count)});
    }
  }
  return all;
}

double TopKSum::sent_bytes() const {
  int64_t bytes = 0;
  for (const Bucket& b : buckets_) bytes += b.bytes * context_.group->size();
  return comm::sent_bytes(Operation::AllGather, bytes, context_.group->size());
}

}  // namespace triax::comm

#include "comm/algorithms/runner.h"

#include <algorithm>
#include <array>

#include "comm/reduce_kernels.h"
#include "comm/tensor_bytes.h"

namespace triax::comm {
namespace {

/// Chunks of one transfer at most: a shared ring of notices holds four times as many (comm/host_messages.h).
constexpr int64_t kMostChunks = 256;

}  // namespace

PlanRunner::PlanRunner(Communicator* links, PlanGroup group, MemoryProvider& memory)
    : links_(links), group_(std::move(group)), arena_(memory) {}

int64_t PlanRunner::chunk_elements(const Transfer& t, DType dtype) const {
  return std::max(kChunkBytes / width(dtype), (t.size() + kMostChunks - 1) / kMostChunks);
}

std::byte* PlanRunner::scratch(int64_t bytes) {
  if (static_cast<int64_t>(scratch_.size_bytes()) < bytes) {
    scratch_.reset();
    scratch_ = arena_.allocate(static_cast<size_t>(bytes), MemoryCategory::Communication);
  }
  return static_cast<std::byte*>(scratch_.data());
}

void PlanRunner::count(const Transfer& t, DType dtype) {
  (group_.node(t.peer) == group_.node(group_.rank) ? sent_.inside : sent_.across) += t.size() * width(dtype);
}

void PlanRunner::run(const Plan& plan, const Tensor& buffer, ReduceOp op) {
  for (const Transfer& t : plan) {
    if (t.kind == TransferKind::Send) count(t, buffer.dtype());
    if (!moves()) continue;
    switch (t.kind) {
      case TransferKind::Send:
        send(t, buffer);
        break;
      case TransferKind::RecvSum:
        receive_sum(t, buffer, op);
        break;
      case TransferKind::RecvCopy:
        receive(t, buffer);
        break;
      case TransferKind::RecvInput:
        receive_input(t, buffer);
        break;
      case TransferKind::SumInputs:
        sum_inputs(t, buffer, op);
        break;
    }
  }
  for (Sending& s : sending_) s.work.wait();
  sending_.clear();
}

void PlanRunner::send(const Transfer& t, const Tensor& buffer) {
  const int64_t chunk = chunk_elements(t, buffer.dtype());
  for (int64_t begin = t.begin; begin < t.end; begin += chunk) {
    const int64_t end = std::min(t.end, begin + chunk);
    sending_.push_back({links_->send(buffer.range(begin, end), t.peer, t.tag), begin, end});
  }
}

void PlanRunner::settle(int64_t begin, int64_t end) {
  std::erase_if(sending_, [&](Sending& s) {
    if (s.end <= begin || end <= s.begin) return s.work.test();
    s.work.wait();
    return true;
  });
}

void PlanRunner::receive(const Transfer& t, const Tensor& buffer) {
  settle(t.begin, t.end);
  const int64_t chunk = chunk_elements(t, buffer.dtype());
  receiving_.clear();
  for (int64_t begin = t.begin; begin < t.end; begin += chunk) {
    receiving_.push_back(links_->recv(buffer.range(begin, std::min(t.end, begin + chunk)), t.peer, t.tag));
  }
  for (Work& work : receiving_) work.wait();
  receiving_.clear();
}

void PlanRunner::receive_sum(const Transfer& t, const Tensor& buffer, ReduceOp op) {
  settle(t.begin, t.end);
  const DType dtype = buffer.dtype();
  const int64_t chunk = chunk_elements(t, dtype);
  const int64_t half_bytes = chunk * width(dtype);
  std::byte* halves = scratch(2 * half_bytes);
  std::array<Work, 2> works;
  const auto size_at = [&](int64_t begin) { return std::min(chunk, t.end - begin); };
  const auto post = [&](int64_t begin, size_t half) {
    Tensor into(halves + static_cast<int64_t>(half) * half_bytes, dtype, {size_at(begin)});
    works[half] = links_->recv(into, t.peer, t.tag);
  };
  post(t.begin, 0);
  size_t half = 0;
  for (int64_t begin = t.begin; begin < t.end; begin += chunk, half ^= 1) {
    if (begin + chunk < t.end) post(begin + chunk, half ^ 1);
    works[half].wait();
    std::byte* sum = bytes_at(buffer, begin);
    const std::array<const std::byte*, 2> inputs{sum, halves + static_cast<int64_t>(half) * half_bytes};
    reduce_buffers(dtype, op, inputs, {&sum, 1}, size_at(begin));
  }
}

void PlanRunner::receive_input(const Transfer& t, const Tensor& buffer) {
  const int64_t bytes = t.size() * width(buffer.dtype());
  std::byte* slot = scratch(bytes * group_.size) + bytes * t.peer;
  const Tensor into(slot, buffer.dtype(), {t.size()});
  const int64_t chunk = chunk_elements(t, buffer.dtype());
  for (int64_t begin = 0; begin < t.size(); begin += chunk) {
    receiving_.push_back(links_->recv(into.range(begin, std::min(t.size(), begin + chunk)), t.peer, t.tag));
  }
}

void PlanRunner::sum_inputs(const Transfer& t, const Tensor& buffer, ReduceOp op) {
  settle(t.begin, t.end);
  for (Work& work : receiving_) work.wait();
  receiving_.clear();
  const int64_t bytes = t.size() * width(buffer.dtype());
  std::byte* slots = scratch(bytes * group_.size);
  std::byte* sum = bytes_at(buffer, t.begin);
  sources_.clear();
  for (int r = 0; r < group_.size; ++r) sources_.push_back(r == group_.rank ? sum : slots + bytes * r);
  reduce_buffers(buffer.dtype(), op, sources_, {&sum, 1}, t.size());
}

}  // namespace triax::comm

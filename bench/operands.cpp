#include "bench/operands.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "kernels/discrete_device.h"

namespace triax::bench {
namespace {

constexpr size_t kHotBytes = size_t{1} << 20;
constexpr size_t kColdBytes = size_t{32} << 20;
/// Of a GPU's memory, between these: more than its last cache holds.
constexpr int64_t kColdShare = 128;
constexpr size_t kMostColdBytes = size_t{512} << 20;
constexpr double kValue = 0.01;

size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

Operands::Operands(kernels::Device& device, Arena& arena) : device_(&device), arena_(&arena), cold_bytes_(kColdBytes) {
  kernels::StepBlock block;
  block.learning_rate = 1e-6;
  kept_.push_back(arena.allocate(sizeof(kernels::StepBlock), MemoryCategory::Workspace));
  step_ = static_cast<kernels::StepBlock*>(kept_.back().data());
  if (auto* discrete = dynamic_cast<kernels::DiscreteDevice*>(device_)) {
    discrete->upload_step(block, step_);
    cold_bytes_ =
        std::clamp(static_cast<size_t>(discrete->facts().memory_bytes / kColdShare), kColdBytes, kMostColdBytes);
  } else {
    new (step_) kernels::StepBlock(block);
  }
}

Tensor Operands::next(int role, Reuse reuse, DType dtype, int64_t rows, int64_t cols) {
  Ring& ring = rings_[static_cast<size_t>(reuse)][static_cast<size_t>(role)];
  const size_t bytes = rounded(static_cast<size_t>(rows * cols) * size_of(dtype));
  const size_t whole = std::bit_ceil(std::max(bytes, reuse == Reuse::Hot ? kHotBytes : cold_bytes_));
  if (ring.buffer.size_bytes() < whole) {
    ring.buffer.reset();
    ring.buffer = arena_->allocate(whole, MemoryCategory::Workspace);
    ring.next = 0;
    fill(ring.buffer);
  }
  if (ring.next + bytes > ring.buffer.size_bytes()) ring.next = 0;
  char* data = static_cast<char*>(ring.buffer.data()) + ring.next;
  ring.next += bytes;
  return Tensor(data, dtype, {rows, cols});
}

/// As bf16, 0.01 twice in a row is a small number as fp32 and as fp64 too.
void Operands::fill(const Buffer& buffer) {
  const auto bytes = static_cast<int64_t>(buffer.size_bytes());
  if (dynamic_cast<kernels::DiscreteDevice*>(device_) == nullptr) {
    device_->fill(buffer.view(DType::BFloat16, {bytes / 2}), kValue);
    return device_->synchronize();
  }
  const Tensor all = buffer.view(DType::UInt8, {bytes});
  const int64_t first = std::min(bytes, static_cast<int64_t>(kHotBytes));
  std::vector<bf16> values(static_cast<size_t>(first / 2), bf16(static_cast<float>(kValue)));
  write(all.range(0, first), values.data());
  constexpr int64_t kMostCopied = int64_t{1} << 30;  // CUDA's widest row is 2 GiB
  for (int64_t done = first; done < bytes;) {
    const int64_t more = std::min({done, bytes - done, kMostCopied});
    device_->copy(all.range(0, more), all.range(done, done + more));
    done += more;
  }
  device_->synchronize();
}

void Operands::write(Tensor device, const void* host) {
  if (auto* discrete = dynamic_cast<kernels::DiscreteDevice*>(device_)) {
    discrete->upload(Tensor(const_cast<void*>(host), device.dtype(), {device.numel()}), device);
  } else {
    std::memcpy(device.data(), host, static_cast<size_t>(device.bytes()));
  }
}

Tensor Operands::int_tensor(DType dtype, int64_t n) {
  kept_.push_back(arena_->allocate(dtype, n, MemoryCategory::Workspace));
  return kept_.back().view(dtype, {n});
}

Tensor Operands::ids(int64_t n, int64_t below) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = static_cast<int32_t>(i * 7919 % below);
  const Tensor tensor = int_tensor(DType::Int32, n);
  write(tensor, values.data());
  return tensor;
}

kernels::TokenIndex Operands::index(int64_t rows, int64_t batch) {
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  std::vector<int64_t> samples(static_cast<size_t>(batch));
  for (int64_t r = 0; r < rows; ++r) positions[static_cast<size_t>(r)] = static_cast<int32_t>(r / batch);
  for (int64_t i = 0; i < batch; ++i) samples[static_cast<size_t>(i)] = i;
  const kernels::TokenIndex index{int_tensor(DType::Int64, batch), int_tensor(DType::Int32, rows)};
  write(index.sample, samples.data());
  write(index.position, positions.data());
  return index;
}

}  // namespace triax::bench

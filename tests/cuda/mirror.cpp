#include "tests/cuda/mirror.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace triax::kernels::testing {
namespace {

constexpr size_t kAlignment = 256, kGuard = 64;
constexpr char kPattern = 0x5a;

/// Bytes from the first element to the last.
size_t extent(const Tensor& t) {
  if (t.numel() == 0) return 0;
  return static_cast<size_t>((t.rows() - 1) * t.row_stride() + t.cols()) * size_of(t.dtype());
}

/// f(offset in the extent, bytes) for every row.
template <class F>
void for_rows(const Tensor& t, F&& f) {
  const size_t size = size_of(t.dtype());
  for (int64_t r = 0; r < t.rows(); ++r) {
    f(static_cast<size_t>(r * t.row_stride()) * size, static_cast<size_t>(t.cols()) * size);
  }
}

/// The same view of other memory.
Tensor moved(const Tensor& t, char* data) {
  if (t.rank() == 1) return Tensor(data, t.dtype(), {t.numel()});
  const Tensor whole(data, t.dtype(), {t.rows(), std::max(t.row_stride(), t.cols())});
  return t.row_stride() == t.cols() ? whole : whole.col_slice(0, t.cols());
}

}  // namespace

Tensor MirroredCall::operator()(const Tensor& host) {
  if (!host) return host;
  for (const Entry& e : entries_) {
    if (e.host.data() == host.data() && e.host.dtype() == host.dtype() && e.host.numel() == host.numel())
      return e.device;
  }
  Entry& e = entries_.emplace_back();
  e.host = host;
  e.offset = kAlignment + reinterpret_cast<uintptr_t>(host.data()) % kAlignment;
  e.image.assign(e.offset + extent(host) + kGuard, kPattern);
  std::memcpy(e.image.data() + e.offset, host.data(), extent(host));
  e.memory = arena_.allocate(e.image.size(), MemoryCategory::Staging);
  const auto bytes = static_cast<int64_t>(e.image.size());
  device_.upload(Tensor(e.image.data(), DType::UInt8, {bytes}), e.memory.view(DType::UInt8, {bytes}));
  e.device = moved(host, static_cast<char*>(e.memory.data()) + e.offset);
  return e.device;
}

const StepBlock* MirroredCall::operator()(const StepBlock* host) {
  if (host == nullptr) return nullptr;
  Buffer& memory = steps_.emplace_back(arena_.allocate(sizeof(StepBlock), MemoryCategory::Staging));
  auto* const there = static_cast<StepBlock*>(memory.data());
  device_.upload_step(*host, there);
  return there;
}

Dropout MirroredCall::operator()(const Dropout& dropout) {
  Dropout there = dropout;
  there.step = (*this)(dropout.step);
  return there;
}

void MirroredCall::finish() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& e = entries_[i];
    std::vector<char> now(e.image.size());
    const auto bytes = static_cast<int64_t>(now.size());
    device_.download(e.memory.view(DType::UInt8, {bytes}), Tensor(now.data(), DType::UInt8, {bytes}));
    for_rows(e.host, [&](size_t at, size_t size) {
      std::memcpy(static_cast<char*>(e.host.data()) + at, now.data() + e.offset + at, size);
      std::memcpy(e.image.data() + e.offset + at, now.data() + e.offset + at, size);
    });
    const auto at = std::mismatch(now.begin(), now.end(), e.image.begin()).first - now.begin();
    if (now != e.image) {
      throw std::runtime_error("the operation wrote outside the elements of tensor " + std::to_string(i) + ", " +
                               e.host.describe() + ": byte " + std::to_string(at - static_cast<int64_t>(e.offset)));
    }
  }
}

}  // namespace triax::kernels::testing

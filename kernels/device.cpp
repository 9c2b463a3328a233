// The host's side of a device whose memory is the host's own.
#include "kernels/device.h"

#include <cstring>

#include "base/clock.h"

namespace triax::kernels {
namespace {

void copy_rows(const Tensor& from, const Tensor& to) {
  ensure(from.dtype() == to.dtype() && from.rows() == to.rows() && from.cols() == to.cols(),
         "upload, download: both sides have one dtype and shape");
  const size_t size = size_of(from.dtype());
  const auto row_bytes = static_cast<size_t>(from.cols()) * size;
  if (from.contiguous() && to.contiguous()) {
    if (from.bytes() > 0) std::memcpy(to.data(), from.data(), static_cast<size_t>(from.bytes()));
    return;
  }
  for (int64_t r = 0; r < from.rows(); ++r) {
    std::memcpy(static_cast<char*>(to.data()) + static_cast<size_t>(r * to.row_stride()) * size,
                static_cast<const char*>(from.data()) + static_cast<size_t>(r * from.row_stride()) * size, row_bytes);
  }
}

}  // namespace

MemoryProvider& Device::staging_memory() { return host_heap_; }

void Device::upload(Tensor host, Tensor device) { copy_rows(host, device); }

void Device::download(Tensor device, Tensor host) {
  synchronize();
  copy_rows(device, host);
}

void Device::mark(size_t slot) {
  if (marks_.size() <= slot) marks_.resize(slot + 1);
  marks_[slot] = now_s();
}

}  // namespace triax::kernels

// The ways between the host's memory and the GPU's, waiting for the GPU, and its clock.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

constexpr int64_t kBounceBytes = int64_t{4} << 20;
constexpr double kSpin_s = 2e-3;    // a wait begins with looking again and again
constexpr double kWatch_s = 10e-3;  // between two questions to the watch

void copy_rows(const Tensor& from, const Tensor& to, cudaMemcpyKind kind, cudaStream_t stream) {
  const size_t size = size_of(from.dtype());
  const auto width = static_cast<size_t>(from.cols()) * size;
  if (from.numel() == 0) return;
  if (from.contiguous() && to.contiguous()) {
    TRIAX_CUDA(cudaMemcpyAsync(to.data(), from.data(), static_cast<size_t>(from.bytes()), kind, stream));
    return;
  }
  // A single row may claim any stride; CUDA wants at least the row's width.
  const auto pitch = [&](const Tensor& t) { return std::max(static_cast<size_t>(t.row_stride()) * size, width); };
  TRIAX_CUDA(cudaMemcpy2DAsync(to.data(), pitch(to), from.data(), pitch(from), width, static_cast<size_t>(from.rows()),
                               kind, stream));
}

}  // namespace

void CudaDevice::synchronize() {
  const Stopwatch watch;
  double asked_s = 0;
  while (!TRIAX_CUDA_DONE(cudaStreamQuery(stream()))) {
    const double waited_s = watch.elapsed_s();
    if (watch_ && waited_s - asked_s >= kWatch_s) {
      watch_();
      asked_s = waited_s;
    }
    if (waited_s < kSpin_s) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  // On an empty stream it comes to pass at once.
  TRIAX_CUDA(cudaEventRecord(origin_.get(), stream()));
  origin_s_ = now_s();
}

Tensor CudaDevice::bounce(DType dtype, int64_t elements) {
  if (!bounce_) bounce_ = bounce_arena_.allocate(static_cast<size_t>(kBounceBytes), MemoryCategory::Staging);
  return bounce_.view(dtype, {elements});
}

// Through pinned memory in chunks, so that every wait is one that the watch sees.
void CudaDevice::upload(Tensor host, Tensor device) {
  need_matrix("upload", "device", device, host.dtype(), host.rows(), host.cols());
  if (!host.contiguous() || !device.contiguous()) {
    copy_rows(host, device, cudaMemcpyHostToDevice, stream());
    synchronize();
    return;
  }
  const Tensor from = host.flat(), to = device.flat();
  const int64_t chunk = kBounceBytes / static_cast<int64_t>(size_of(host.dtype()));
  for (int64_t at = 0; at < from.numel(); at += chunk) {
    const Tensor part = from.range(at, std::min(at + chunk, from.numel()));
    const Tensor pinned = bounce(part.dtype(), part.numel());
    std::memcpy(pinned.data(), part.data(), static_cast<size_t>(part.bytes()));
    start_upload(pinned, to.range(at, at + part.numel()));
    synchronize();
  }
}

void CudaDevice::download(Tensor device, Tensor host) {
  need_matrix("download", "host", host, device.dtype(), device.rows(), device.cols());
  if (!host.contiguous() || !device.contiguous()) {
    synchronize();
    copy_rows(device, host, cudaMemcpyDeviceToHost, stream());
    synchronize();
    return;
  }
  const Tensor from = device.flat(), to = host.flat();
  const int64_t chunk = kBounceBytes / static_cast<int64_t>(size_of(device.dtype()));
  for (int64_t at = 0; at < from.numel(); at += chunk) {
    const Tensor part = to.range(at, std::min(at + chunk, to.numel()));
    const Tensor pinned = bounce(part.dtype(), part.numel());
    start_download(from.range(at, at + part.numel()), pinned);
    synchronize();
    std::memcpy(part.data(), pinned.data(), static_cast<size_t>(part.bytes()));
  }
}

void CudaDevice::start_upload(Tensor host, Tensor device) {
  need_matrix("start_upload", "device", device, host.dtype(), host.rows(), host.cols());
  copy_rows(host, device, cudaMemcpyHostToDevice, stream());
}

void CudaDevice::start_download(Tensor device, Tensor host) {
  need_matrix("start_download", "host", host, device.dtype(), device.rows(), device.cols());
  copy_rows(device, host, cudaMemcpyDeviceToHost, stream());
}

void CudaDevice::start_copy_beside(Tensor device, Tensor host) {
  need_matrix("start_copy_beside", "host", host, device.dtype(), device.rows(), device.cols());
  if (!copy_stream_) {
    TRIAX_CUDA(cudaStreamCreateWithPriority(copy_stream_.out(), cudaStreamNonBlocking, 0));
    for (CudaEvent* event : {&copies_ready_, &copies_done_}) {
      TRIAX_CUDA(cudaEventCreateWithFlags(event->out(), cudaEventDisableTiming));
    }
  }
  TRIAX_CUDA(cudaEventRecord(copies_ready_.get(), stream()));
  TRIAX_CUDA(cudaStreamWaitEvent(copy_stream_.get(), copies_ready_.get(), 0));
  copy_rows(device, host, cudaMemcpyDeviceToHost, copy_stream_.get());
  TRIAX_CUDA(cudaEventRecord(copies_done_.get(), copy_stream_.get()));
  copies_pending_ = true;
}

void CudaDevice::order_after_copies() {
  if (!copies_pending_) return;
  TRIAX_CUDA(cudaStreamWaitEvent(stream(), copies_done_.get(), 0));
  copies_pending_ = false;
}

void CudaDevice::finish_copies() {
  if (!copy_stream_) return;
  TRIAX_CUDA(cudaSetDevice(ordinal_));  // of this thread
  TRIAX_CUDA(cudaEventSynchronize(copies_done_.get()));
}

void CudaDevice::mark(size_t slot) {
  while (marks_.size() <= slot) {
    marks_.emplace_back();
    TRIAX_CUDA(cudaEventCreateWithFlags(marks_.back().out(), cudaEventDefault));
  }
  TRIAX_CUDA(cudaEventRecord(marks_[slot].get(), stream()));
}

double CudaDevice::marked_s(size_t slot) { return host_time_s(marks_[slot]); }

/// From the event to the end of the last wait, whose time both clocks know.
double CudaDevice::host_time_s(const CudaEvent& event) {
  float ms = 0;
  TRIAX_CUDA(cudaEventSynchronize(origin_.get()));
  TRIAX_CUDA(cudaEventElapsedTime(&ms, event.get(), origin_.get()));
  return origin_s_ - 1e-3 * static_cast<double>(ms);
}

}  // namespace triax::kernels

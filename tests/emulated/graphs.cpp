// Stream capture and graphs of the CUDA runtime's stand-in, with what a driver refuses meanwhile. A broken capture ends
// with cudaErrorStreamCaptureInvalidated and no graph. One stream takes part in a capture: joining others by events is
// not emulated, and says so.
#include <cuda_runtime.h>
#include <simt.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "gpu.h"
#include "tests/emulated/recorded.h"

using triax::emulated::Capture;
using triax::emulated::Gpu;
using triax::emulated::HostCalls;
using triax::emulated::Task;

namespace {

struct Captures {
  std::mutex mutex;
  std::vector<EmulatedStream*> streams;
};
Captures& captures() {
  static Captures all;
  return all;
}

HostCalls& calls() {
  static HostCalls all;
  return all;
}

/// Of the capture that the stream is in.
cudaError_t break_off(Capture& capture) {
  return std::exchange(capture.valid, false) ? cudaErrorStreamCaptureUnsupported : cudaErrorStreamCaptureInvalidated;
}

}  // namespace

namespace triax::emulated {

cudaError_t check_unsafe_call() {
  const std::lock_guard lock(captures().mutex);
  cudaError_t status = cudaSuccess;
  for (EmulatedStream* stream : captures().streams) {
    Capture& capture = *stream->capture;
    if (capture.thread != std::this_thread::get_id() && capture.mode != cudaStreamCaptureModeGlobal) continue;
    capture.valid = false;
    status = cudaErrorStreamCaptureUnsupported;
  }
  return status;
}

cudaError_t check_query(const EmulatedStream& stream) {
  return stream.capture ? break_off(*stream.capture) : check_unsafe_call();
}

cudaError_t check_work(EmulatedStream* stream, Capturable capturable) {
  if (stream == nullptr) {
    const std::lock_guard lock(captures().mutex);
    for (EmulatedStream* captured : captures().streams) {
      if (!captured->blocking) continue;
      captured->capture->valid = false;
      return cudaErrorStreamCaptureImplicit;
    }
    return cudaErrorInvalidResourceHandle;  // there is no legacy stream here
  }
  if (!stream->capture) return cudaSuccess;
  if (!stream->capture->valid) return cudaErrorStreamCaptureInvalidated;
  return capturable == Capturable::Yes ? cudaSuccess : break_off(*stream->capture);
}

}  // namespace triax::emulated

struct EmulatedGraph {
  std::vector<Task> tasks;
  int64_t kernels = 0;
  std::vector<std::pair<const void*, size_t>> ranges;
};
struct EmulatedGraphExec {
  std::shared_ptr<const EmulatedGraph> graph;  // launches keep what they were given
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (stream == nullptr) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture) return cudaErrorIllegalState;
  stream->capture = std::make_shared<Capture>();
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->mode = mode;
  const std::lock_guard lock(captures().mutex);
  captures().streams.push_back(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (stream == nullptr || !stream->capture) return cudaErrorIllegalState;
  if (stream->capture->thread != std::this_thread::get_id()) return cudaErrorStreamCaptureWrongThread;
  {
    const std::lock_guard lock(captures().mutex);
    std::erase(captures().streams, stream);
  }
  const std::shared_ptr<Capture> capture = std::exchange(stream->capture, nullptr);
  if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
  *graph = std::make_unique<EmulatedGraph>(
               EmulatedGraph{std::move(capture->tasks), capture->kernels, std::move(capture->ranges)})
               .release();
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (graph == nullptr) return cudaErrorInvalidValue;
  std::unique_ptr<EmulatedGraph>{graph};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  if (graph == nullptr) return cudaErrorInvalidValue;
  *exec = std::make_unique<EmulatedGraphExec>(EmulatedGraphExec{std::make_shared<EmulatedGraph>(*graph)}).release();
  ++calls().graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (exec == nullptr) return cudaErrorInvalidValue;
  const cudaError_t status = triax::emulated::check_work(stream, triax::emulated::Capturable::No);
  if (status != cudaSuccess) return status;
  for (const auto& [data, bytes] : exec->graph->ranges) {  // a GPU would fail, or worse, when it comes there
    if (!triax::emulated::on_device(data, bytes)) return cudaErrorInvalidValue;
  }
  ++calls().graph_launches;
  calls().graph_kernels += exec->graph->kernels;
  Gpu::instance().submit(*stream, [graph = exec->graph, next = size_t{0}]() mutable {
    for (; next < graph->tasks.size(); ++next) {
      if (!graph->tasks[next]()) return false;
    }
    return true;
  });
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  if (exec == nullptr) return cudaErrorInvalidValue;
  std::unique_ptr<EmulatedGraphExec>{exec};
  --calls().graphs;
  return cudaSuccess;
}

/// A kernel that a broken capture is given is lost, and the end of the capture says why.
void triax::simt::submit(cudaStream_t stream, std::function<void()> kernel) {
  ++(stream->capture ? calls().captured : calls().kernels);
  if (stream->capture) ++stream->capture->kernels;
  Gpu::instance().submit(*stream, [kernel = std::move(kernel)] { return kernel(), true; });
}

extern "C" __attribute__((visibility("default"))) triax::emulated::HostCalls* triax_emulated_host_calls() {
  return &calls();
}

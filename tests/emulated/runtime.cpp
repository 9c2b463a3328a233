// The CUDA runtime's stand-in: streams and events on the emulated GPU (gpu.h), copies with checks of their addresses.
#include <cuda_runtime.h>
#include <simt.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "gpu.h"

using triax::emulated::Capturable;
using triax::emulated::check_query;
using triax::emulated::check_unsafe_call;
using triax::emulated::check_work;
using triax::emulated::Gpu;
using triax::emulated::is_pinned;
using triax::emulated::on_device;

namespace {

int visible_gpus() {
  const char* const text = std::getenv("TRIAX_EMULATED_GPUS");
  return text == nullptr ? 16 : std::atoi(text);
}

bool loads_eagerly() {
  const char* const text = std::getenv("CUDA_MODULE_LOADING");
  return text != nullptr && std::strcmp(text, "EAGER") == 0;
}

/// The driver reads how kernels are to be loaded in the first call that needs it; who asks for it later is not heard.
/// What the hardware does not tell and this does: true when that has happened.
bool asked_too_late() {
  static const bool heard = loads_eagerly();
  return loads_eagerly() && !heard;
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count() +
         triax::emulated::pretended_s;
}

void copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows) {
  for (size_t r = 0; r < rows; ++r) {
    std::memcpy(static_cast<char*>(to) + r * to_pitch, static_cast<const char*>(from) + r * from_pitch, width);
  }
}

}  // namespace

struct EmulatedEvent {
  struct State {
    std::atomic<uint64_t> done = 0;  // records that have come to pass
    double time_s = 0;               // of the latest; written before it
  };
  uint64_t recorded = 0;                               // by the host
  const EmulatedStream* stream = nullptr;              // of the latest record
  std::shared_ptr<triax::emulated::Capture> captured;  // the latest record was of a captured stream
  std::shared_ptr<State> state = std::make_shared<State>();
};

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing blocking stream";
    default:
      return "invalid argument";
  }
}
extern "C" __attribute__((visibility("default"))) const triax::emulated::DriverSettings* triax_emulated_driver() {
  const auto set = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  static const triax::emulated::DriverSettings settings{set("CUDA_MODULE_LOADING"), set("CUDA_DEVICE_MAX_CONNECTIONS")};
  return &settings;
}
cudaError_t cudaGetLastError() { return std::exchange(triax::emulated::pending_error, cudaSuccess); }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 12020, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 12020, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  if (asked_too_late()) return cudaErrorInvalidValue;
  static_cast<void>(triax_emulated_driver());  // starts it
  *count = visible_gpus();
  return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (asked_too_late()) return cudaErrorInvalidValue;
  if (device < 0 || device >= visible_gpus()) return cudaErrorInvalidDevice;
  size_t free = 0;
  std::strcpy(properties->name, "emulated GPU");
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  properties->major = static_cast<int>(triax::simt::emulated_capability() / 10);
  properties->minor = static_cast<int>(triax::simt::emulated_capability() % 10);
  properties->multiProcessorCount = 1;
  return cudaMemGetInfo(&free, &properties->totalGlobalMem);
}
cudaError_t cudaSetDevice(int device) {
  if (asked_too_late()) return cudaErrorInvalidValue;
  return device >= 0 && device < visible_gpus() ? cudaSuccess : cudaErrorInvalidDevice;
}

// ---- Streams and events ---------------------------------------------------------------------------------------------

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  *stream = std::make_unique<EmulatedStream>().release();
  (*stream)->blocking = (flags & cudaStreamNonBlocking) == 0;
  Gpu::instance().add(**stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Gpu::instance().remove(*stream);
  std::unique_ptr<EmulatedStream>{stream};
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t status = check_query(*stream); status != cudaSuccess) return status;
  Gpu::instance().wait(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t status = check_query(*stream); status != cudaSuccess) return status;
  return Gpu::instance().idle(*stream) ? cudaSuccess : triax::emulated::pending_error = cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (stream->capture) {
    if (event->captured == stream->capture) return cudaSuccess;  // in order
    stream->capture->valid = false;
    return event->captured ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation;
  }
  if (event->captured) return cudaErrorNotSupported;  // a stream that joins a capture is not emulated
  Gpu::instance().submit(*stream, [stream, recorder = event->stream, state = event->state, wanted = event->recorded] {
    const bool done = state->done >= wanted;
    stream->awaits = done ? nullptr : recorder;
    return done;
  });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = std::make_unique<EmulatedEvent>().release();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::unique_ptr<EmulatedEvent>{event};
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t status = check_work(stream, Capturable::Yes); status != cudaSuccess) return status;
  event->captured = stream->capture;
  event->stream = stream;
  if (event->captured) return cudaSuccess;  // it orders streams within the graph, and never comes to pass
  Gpu::instance().submit(*stream, [state = event->state, number = ++event->recorded] {
    state->time_s = now_s();
    state->done = number;
    return true;
  });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->captured) return event->captured->valid = false, cudaErrorCapturedEvent;
  if (const cudaError_t status = check_unsafe_call(); status != cudaSuccess) return status;
  return event->state->done >= event->recorded ? cudaSuccess : triax::emulated::pending_error = cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->captured) return event->captured->valid = false, cudaErrorCapturedEvent;
  if (const cudaError_t status = check_unsafe_call(); status != cudaSuccess) return status;
  Gpu::instance().wait([state = event->state, wanted = event->recorded] { return state->done >= wanted; });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  if (start->recorded == 0 || end->recorded == 0) return cudaErrorInvalidValue;
  if (cudaEventQuery(start) != cudaSuccess || cudaEventQuery(end) != cudaSuccess) return cudaErrorNotReady;
  *ms = static_cast<float>(1e3 * (end->state->time_s - start->state->time_s));
  return cudaSuccess;
}

// ---- Copies ---------------------------------------------------------------------------------------------------------

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  if (to_pitch < width || from_pitch < width) return cudaErrorInvalidValue;
  const size_t to_bytes = (rows - 1) * to_pitch + width, from_bytes = (rows - 1) * from_pitch + width;
  // What a real GPU would fail on or read wrongly: a host address where a device address belongs, or the reverse.
  if (on_device(to, to_bytes) != (kind != cudaMemcpyDeviceToHost)) return cudaErrorInvalidValue;
  if (on_device(from, from_bytes) != (kind != cudaMemcpyHostToDevice)) return cudaErrorInvalidValue;
  const bool pageable = (kind == cudaMemcpyHostToDevice && !is_pinned(from, from_bytes)) ||
                        (kind == cudaMemcpyDeviceToHost && !is_pinned(to, to_bytes));
  const cudaError_t status = check_work(stream, pageable ? Capturable::No : Capturable::Yes);
  if (status != cudaSuccess) return status;
  if (stream->capture) {
    if (kind != cudaMemcpyHostToDevice) stream->capture->ranges.emplace_back(from, from_bytes);
    if (kind != cudaMemcpyDeviceToHost) stream->capture->ranges.emplace_back(to, to_bytes);
  }
  if (pageable && kind == cudaMemcpyHostToDevice) {
    // The driver takes the data before the call returns.
    auto taken = std::make_shared<std::vector<char>>(width * rows);
    copy_rows(taken->data(), width, from, from_pitch, width, rows);
    Gpu::instance().submit(*stream, [=] { return copy_rows(to, to_pitch, taken->data(), width, width, rows), true; });
    return cudaSuccess;
  }
  if (kind == cudaMemcpyDeviceToHost && !stream->capture) {  // a host that reads it too early finds this
    for (size_t r = 0; r < rows; ++r) std::memset(static_cast<char*>(to) + r * to_pitch, 0xff, width);
  }
  Gpu::instance().submit(*stream, [=] { return copy_rows(to, to_pitch, from, from_pitch, width, rows), true; });
  if (pageable) Gpu::instance().wait(*stream);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}
cudaError_t cudaMemsetAsync(void* data, int byte, size_t bytes, cudaStream_t stream) {
  if (!on_device(data, bytes)) return cudaErrorInvalidValue;
  if (const cudaError_t status = check_work(stream, Capturable::Yes); status != cudaSuccess) return status;
  if (stream->capture) stream->capture->ranges.emplace_back(data, bytes);
  Gpu::instance().submit(*stream, [=] { return std::memset(data, byte, bytes), true; });
  return cudaSuccess;
}

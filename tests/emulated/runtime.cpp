// The CUDA runtime's stand-in: heap memory with checks of its use, everything else at once.
#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

namespace {

constexpr size_t kTotal = size_t{8} << 30;

struct Memory {
  std::map<void*, size_t> live;
  size_t used = 0;
};

Memory& memory() {
  static Memory all;
  return all;
}

/// Whether the range lies in one live allocation.
bool on_device(const void* data, size_t bytes) {
  auto& live = memory().live;
  auto at = live.upper_bound(const_cast<void*>(data));
  if (at == live.begin()) return false;
  --at;
  const auto begin = reinterpret_cast<uintptr_t>(at->first), p = reinterpret_cast<uintptr_t>(data);
  return p + bytes <= begin + at->second;
}

}  // namespace

struct EmulatedStream {};

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    default:
      return "invalid argument";
  }
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 12020, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 12020, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return cudaErrorInvalidDevice;
  std::strcpy(properties->name, "emulated GPU");
  properties->totalGlobalMem = kTotal;
  properties->major = 8;
  properties->minor = 6;
  properties->multiProcessorCount = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

cudaError_t cudaMalloc(void** data, size_t bytes) {
  if (bytes > kTotal - memory().used) return cudaErrorMemoryAllocation;
  const size_t room = (bytes + 255) / 256 * 256;
  *data = std::aligned_alloc(256, room);
  if (*data == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*data, 0xff, room);  // NaN: reads before writes show
  memory().live[*data] = bytes;
  memory().used += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  const auto at = memory().live.find(data);
  if (at == memory().live.end()) return data == nullptr ? cudaSuccess : cudaErrorInvalidValue;
  memory().used -= at->second;
  memory().live.erase(at);
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = kTotal - memory().used;
  *total = kTotal;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = std::make_unique<EmulatedStream>().release();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::unique_ptr<EmulatedStream>{stream};
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t) {
  if (to_pitch < width || from_pitch < width) return cudaErrorInvalidValue;
  const size_t to_bytes = (rows - 1) * to_pitch + width, from_bytes = (rows - 1) * from_pitch + width;
  // What a real GPU would fail on or read wrongly: a host address where a device address belongs, or the reverse.
  if (on_device(to, to_bytes) != (kind != cudaMemcpyDeviceToHost)) return cudaErrorInvalidValue;
  if (on_device(from, from_bytes) != (kind != cudaMemcpyHostToDevice)) return cudaErrorInvalidValue;
  for (size_t r = 0; r < rows; ++r) {
    std::memcpy(static_cast<char*>(to) + r * to_pitch, static_cast<const char*>(from) + r * from_pitch, width);
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, stream);
}
cudaError_t cudaMemsetAsync(void* data, int byte, size_t bytes, cudaStream_t) {
  if (!on_device(data, bytes)) return cudaErrorInvalidValue;
  std::memset(data, byte, bytes);
  return cudaSuccess;
}

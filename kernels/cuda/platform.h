// What the kernels are written against. nvcc compiles them for GPUs; g++ compiles the same files for the host, where
// tests/emulated/include stands in for the CUDA headers (TRIAX_EMULATED) and every CUDA thread is a fiber.
#pragma once

#include "kernels/cuda/check.h"

#if defined(TRIAX_EMULATED)
#include <simt_device.h>
#else
/// Launches and checks the launch. The kernel stands in parentheses when it has template arguments.
#define TRIAX_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                            \
  do {                                                                                          \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__);                         \
    ::triax::kernels::cuda_check(cudaGetLastError(), "launch of " #kernel, __FILE__, __LINE__); \
  } while (false)
/// Dynamic shared memory of the block, 16-byte aligned.
#define TRIAX_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#define TRIAX_NOINLINE __noinline__
#define TRIAX_UNROLL _Pragma("unroll")
#define TRIAX_ROLLED _Pragma("unroll 1")
#define TRIAX_UNROLL_BY_4 _Pragma("unroll 4")
#endif

namespace triax::kernels {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;
/// The block size of kernels that have no reason for another.
inline constexpr int kBlock = 256;
/// A CUDA grid's y and z dimensions end here.
inline constexpr int64_t kMaxGridYZ = 65535;

inline unsigned grid_of(int64_t work, int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

}  // namespace triax::kernels

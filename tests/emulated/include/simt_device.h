// The words of CUDA's device language that kernels/cuda uses, as calls of simt.h.
#pragma once

#include <simt.h>

#define threadIdx (::triax::simt::thread_index())
#define blockIdx (::triax::simt::block_index())
#define blockDim (::triax::simt::block_size())
#define gridDim (::triax::simt::grid_size())
#define __syncthreads() ::triax::simt::block_barrier(__FILE__, __LINE__)
#define __syncwarp() ::triax::simt::warp_barrier(__FILE__, __LINE__)
#define __shfl_xor_sync(mask, value, distance) \
  ::triax::simt::exchange((mask), (value), ::triax::simt::lane() ^ static_cast<unsigned>(distance), __FILE__, __LINE__)
#define __shfl_sync(mask, value, from) \
  ::triax::simt::exchange((mask), (value), static_cast<unsigned>(from) % 32u, __FILE__, __LINE__)
#define __all_sync(mask, value) ::triax::simt::all_lanes((mask), (value), __FILE__, __LINE__)

#define TRIAX_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                \
  ::triax::simt::queue((stream), #kernel, dim3(grid), dim3(static_cast<unsigned>(block)), (shared_bytes), (kernel), \
                       __VA_ARGS__)
#define TRIAX_DYNAMIC_SHARED(name) unsigned char* const name = ::triax::simt::dynamic_shared()
#define TRIAX_NOINLINE
#define TRIAX_UNROLL
#define TRIAX_ROLLED

namespace triax::simt {

inline void warp_barrier(const char* file, int line) { share(0xffffffffu, nullptr, 0, file, line); }

inline int all_lanes(unsigned mask, int value, const char* file, int line) {
  const unsigned char* const slots = share(mask, &value, sizeof value, file, line);
  int all = 1;
  for (unsigned l = 0; l < 32; ++l) {
    int of_lane;
    std::memcpy(&of_lane, slots + l * kSlotBytes, sizeof of_lane);
    if ((mask >> l & 1) != 0 && of_lane == 0) all = 0;
  }
  return all;
}

}  // namespace triax::simt

/// Threads of all blocks run on one operating-system thread.
inline int atomicAdd(int* at, int value) {
  const int before = *at;
  *at += value;
  return before;
}
inline int atomicMax(int* at, int value) {
  const int before = *at;
  if (value > before) *at = value;
  return before;
}
inline float __fdividef(float x, float y) { return x / y; }

// The words of CUDA's device language that kernels/cuda uses, as calls of simt.h.
#pragma once

#include <simt.h>

#include <algorithm>
#include <bit>

#include "kernels/cuda/check.h"

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
#define __ballot_sync(mask, value) ::triax::simt::ballot((mask), (value), __FILE__, __LINE__)
#define __all_sync(mask, value) ::triax::simt::all_lanes((mask), (value), __FILE__, __LINE__)

#define TRIAX_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                 \
  (::triax::simt::queue((stream), #kernel, dim3(grid), dim3(static_cast<unsigned>(block)), (shared_bytes), (kernel), \
                        __VA_ARGS__),                                                                                \
   ::triax::kernels::cuda_check(cudaGetLastError(), "launch of " #kernel, __FILE__, __LINE__))
#define TRIAX_DYNAMIC_SHARED(name) unsigned char* const name = ::triax::simt::dynamic_shared()
#define TRIAX_NOTE_LOAD(pointer, bytes, site) \
  ::triax::simt::check_access(::triax::simt::AccessKind::Load, (pointer), (bytes), (site))
#define TRIAX_NOTE_STORE(pointer, bytes, site) \
  ::triax::simt::check_access(::triax::simt::AccessKind::Store, (pointer), (bytes), (site))
#define TRIAX_NOINLINE
#define TRIAX_UNROLL
#define TRIAX_ROLLED
#define TRIAX_UNROLL_BY_4

namespace triax::kernels {
using Site = std::source_location;
}  // namespace triax::kernels

namespace triax::simt {

inline void check_access(AccessKind kind, const void* p, size_t bytes, const std::source_location& site) {
  const auto begin = reinterpret_cast<uintptr_t>(p);
  if (begin % bytes != 0) fail_misaligned(bytes, site);
  if (find_global != nullptr) {
    bool known = recent_generation == memory_generation.load(std::memory_order_relaxed);
    known = known && std::any_of(recent_ranges.begin(), recent_ranges.end(), [&](const GlobalRange& range) {
              return range.begin <= begin && begin + bytes <= range.end;
            });
    if (!known) find_range(p, bytes, site);
  }
  if (counting_traffic) note_access(kind, p, bytes, site);
}

inline void warp_barrier(const char* file, int line) { share(0xffffffffu, nullptr, 0, file, line); }

inline unsigned ballot(unsigned mask, bool value, const char* file, int line) {
  const unsigned char* const slots = share(mask, &value, sizeof value, file, line);
  unsigned lanes = 0;
  for (unsigned l = 0; l < 32; ++l) {
    if ((mask >> l & 1) != 0 && slots[l * kSlotBytes] != 0) lanes |= 1u << l;
  }
  return lanes;
}

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
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
// Rounded on its own: the sources are compiled without contraction of a product and a sum.
// A GPU has one NaN, whatever went in; the host keeps the bits of an operand, or makes a negative one.
inline float with_the_gpus_nan(float v) { return v == v ? v : std::bit_cast<float>(0x7fffffffu); }
inline float __fmul_rn(float x, float y) { return with_the_gpus_nan(x * y); }
inline float __fadd_rn(float x, float y) { return with_the_gpus_nan(x + y); }
inline float __fsub_rn(float x, float y) { return with_the_gpus_nan(x - y); }
inline int __float_as_int(float v) { return std::bit_cast<int>(v); }
inline float __fdividef(float x, float y) { return x / y; }

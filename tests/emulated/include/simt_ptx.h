// Host versions of kernels/cuda/ptx.h: the same functions, lane for lane.
#pragma once

#include <simt_device.h>

#include <type_traits>

#include "base/fp8.h"

namespace triax::kernels {

inline float to_float(float v) { return v; }
inline float to_float(bf16 v) { return static_cast<float>(v); }
inline float to_float(fp16 v) { return static_cast<float>(v); }

/// A NaN becomes the one that the GPU's conversions know.
template <class T>
inline T from_float(float v) {
  T to(v);
  if constexpr (!std::is_same_v<T, float>) {
    if (v != v) to.bits = 0x7fff;
  }
  return to;
}

template <DType Type>
uint8_t fp8_bits(float v) {
  return to_fp8(v, Type);
}

template <class T>
uint32_t pack(float low, float high) {
  return static_cast<uint32_t>(from_float<T>(low).bits) | static_cast<uint32_t>(from_float<T>(high).bits) << 16;
}

/// Element `half` (0 or 1) of a register.
template <class T>
float unpack(uint32_t r, int half) {
  T v;
  v.bits = static_cast<uint16_t>(half != 0 ? r >> 16 : r);
  return static_cast<float>(v);
}

inline float fast_exp2(float x) { return std::exp2(x); }

inline void load_matrices_as(uint32_t (&r)[4], const void* row, bool transposed, const char* file, int line) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) throw simt::KernelFault("ldmatrix: a row is not 16-byte aligned");
  const unsigned char* const slots = simt::share(0xffffffffu, &row, sizeof row, file, line);
  const unsigned lane = simt::lane();
  for (unsigned i = 0; i < 4; ++i) {
    uint16_t pair[2];
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned at_row = transposed ? 2 * (lane % 4) + e : lane / 4;
      const unsigned at_col = transposed ? lane / 4 : 2 * (lane % 4) + e;
      const unsigned char* source;
      std::memcpy(&source, slots + (8 * i + at_row) * simt::kSlotBytes, sizeof source);
      std::memcpy(&pair[e], source + 2 * at_col, 2);
    }
    r[i] = static_cast<uint32_t>(pair[0]) | static_cast<uint32_t>(pair[1]) << 16;
  }
}
#define load_matrices(r, row) load_matrices_as((r), (row), false, __FILE__, __LINE__)
#define load_matrices_transposed(r, row) load_matrices_as((r), (row), true, __FILE__, __LINE__)

template <class T>
void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const unsigned char* const slots = simt::share(0xffffffffu, mine, sizeof mine, "mma.sync", sizeof(T));
  const auto reg = [&](unsigned lane, unsigned i) {
    uint32_t r;
    std::memcpy(&r, slots + lane * simt::kSlotBytes + 4 * i, 4);
    return r;
  };
  const unsigned g = simt::lane() / 4, t = simt::lane() % 4;
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned i = g + (e & 2 ? 8 : 0), j = 2 * t + (e & 1);
    float sum = c[e];
    for (unsigned k = 0; k < 16; ++k) {
      const uint32_t left = reg(i % 8 * 4 + k % 8 / 2, i / 8 + k / 8 * 2), right = reg(j * 4 + k % 8 / 2, 4 + k / 8);
      sum += unpack<T>(left, k & 1) * unpack<T>(right, k & 1);
    }
    c[e] = sum;
  }
}

inline void copy_async_16(void* shared, const void* global, int valid, Site site = Site::current()) {
  if (reinterpret_cast<uintptr_t>(shared) % 16 != 0 || reinterpret_cast<uintptr_t>(global) % 16 != 0) {
    throw simt::KernelFault("cp.async: an address is not 16-byte aligned");
  }
  if (valid != 0) TRIAX_NOTE_LOAD(global, 16, site);
  simt::copy_later(shared, valid != 0 ? global : nullptr, 16);
}
inline void copies_commit() { simt::close_copies(); }
template <int N>
void copies_wait() {
  simt::finish_copies(N);
}

}  // namespace triax::kernels

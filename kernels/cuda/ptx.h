// The machine instructions that have no C++ name: matrix products of a warp, their operand loads, asynchronous copies
// to shared memory. PTX ISA 7.0, sm_80 on. The host's versions of all of these are in
// tests/emulated/include/simt_ptx.h.
#pragma once

#include "base/dtype.h"
#include "kernels/cuda/platform.h"

#if defined(TRIAX_EMULATED)
#include <simt_ptx.h>
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace triax::kernels {

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

/// Four 8 x 8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8 (16 bytes); register i
/// of lane l gets elements (l / 4, 2 * (l % 4)) and the next of matrix i.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
/// The same, every matrix transposed: register i of lane l gets elements (2 * (l % 4), l / 4) and that below it.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}

/// c[16, 8] += a[16, 16] b[16, 8] in fp32, by one warp. With g = lane / 4, t = lane % 4 a lane holds
/// a: (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..); b: (2t.., g), (2t + 8.., g);
/// c: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
template <class T>
__device__ __forceinline__ void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void mma_16x8x16<bf16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma_16x8x16<fp16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// 16 bytes to shared memory, zeros when `valid` is 0; complete after copies_wait in this thread.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, int valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid != 0 ? 16 : 0)
               : "memory");
}
/// Closes the group of copies issued since the last one.
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most N of this thread's groups are incomplete.
template <int N>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/// 2^x to 2 ulp.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(bf16 v) { return __uint_as_float(static_cast<uint32_t>(v.bits) << 16); }
__device__ __forceinline__ float to_float(fp16 v) { return __half2float(__ushort_as_half(v.bits)); }

/// To the nearest, ties to even; NaN stays NaN, fp16 overflows to infinity.
template <class T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v) {
  return v;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float v) {
  bf16 r;
  r.bits = __bfloat16_as_ushort(__float2bfloat16_rn(v));
  return r;
}
template <>
__device__ __forceinline__ fp16 from_float<fp16>(float v) {
  fp16 r;
  r.bits = __half_as_ushort(__float2half_rn(v));
  return r;
}

/// As to_fp8 (base/fp8.h).
template <DType Type>
__device__ __forceinline__ uint8_t fp8_bits(float v) {
  if (!(fabsf(v) < INFINITY)) return 0x7f;
  return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, Type == DType::Float8E4M3 ? __NV_E4M3 : __NV_E5M2);
}

/// Two elements in one register, `low` in the low half.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack<bf16>(float low, float high) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&v);
}
template <>
__device__ __forceinline__ uint32_t pack<fp16>(float low, float high) {
  const __half2 v = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&v);
}

}  // namespace triax::kernels
#endif

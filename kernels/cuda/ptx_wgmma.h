// wgmma (PTX ISA 8.0, sm_90a): products of a warpgroup, asynchronous, operands in shared memory found by descriptors
// (matrix_descriptor, ptx_hopper.h), sums in registers. With w the warp in its group, g = lane / 4, t = lane % 4
// element d[n][e] of a lane is (16 w + g + e / 2 * 8, 8 n + 2 t + e % 2), and a left operand in registers is that of
// mma_16x8x16 for the warp's 16 rows.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace triax::kernels {

/// Before the first product, and after registers of a product were written by anything else.
__device__ __forceinline__ void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Closes the group of products issued since the last one.
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most N groups are incomplete.
template <int N>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/// After a wait, before sums are read: keeps the compiler from reading them earlier.
template <int Tiles>
__device__ __forceinline__ void products_done(float (&d)[Tiles][4]) {
  TRIAX_UNROLL
  for (int n = 0; n < Tiles; ++n) {
    asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
  }
}

/// d[64, 8 Tiles] = a[64, 16] b[8 Tiles, 16]^T, plus what d was if `accumulate` is not 0. Both operands with k
/// contiguous.
template <class T, int Tiles>
__device__ __forceinline__ void wgmma_shared(float (&d)[Tiles][4], uint64_t a, uint64_t b, int accumulate);
/// d[64, 8 Tiles] += a[64, 16] b[16, 8 Tiles], a in registers, b with n contiguous.
template <class T, int Tiles>
__device__ __forceinline__ void wgmma_registers(float (&d)[Tiles][4], const uint32_t (&a)[4], uint64_t b);

#define TRIAX_D4(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define TRIAX_D16(n) TRIAX_D4(n), TRIAX_D4(n + 1), TRIAX_D4(n + 2), TRIAX_D4(n + 3)
#define TRIAX_D64 TRIAX_D16(0), TRIAX_D16(4)
#define TRIAX_D96 TRIAX_D64, TRIAX_D16(8)
#define TRIAX_D128 TRIAX_D96, TRIAX_D16(12)
#define TRIAX_N64                                                          \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TRIAX_N96 TRIAX_N64 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define TRIAX_N128 TRIAX_N96 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// a_, b_, accumulate_: the operands behind d by their numbers.
#define TRIAX_WGMMA_SHARED(type, name, columns, a_, b_, accumulate_)                                                 \
  template <>                                                                                                        \
  __device__ __forceinline__ void wgmma_shared<type, columns / 8>(float(&d)[columns / 8][4], uint64_t a, uint64_t b, \
                                                                  int accumulate) {                                  \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate_ ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns  \
                 "k16.f32." name "." name " {" TRIAX_N##columns "}, " a_ ", " b_ ", p, 1, 1, 0, 0;\n}"               \
                 : TRIAX_D##columns                                                                                  \
                 : "l"(a), "l"(b), "r"(accumulate));                                                                 \
  }
#define TRIAX_WGMMA_REGISTERS(type, name, columns, a_, b_, accumulate_)                                                \
  template <>                                                                                                          \
  __device__ __forceinline__ void wgmma_registers<type, columns / 8>(float(&d)[columns / 8][4], const uint32_t(&a)[4], \
                                                                     uint64_t b) {                                     \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate_ ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns    \
                 "k16.f32." name "." name " {" TRIAX_N##columns "}, {" a_ "}, " b_ ", p, 1, 1, 1;\n}"                  \
                 : TRIAX_D##columns                                                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));                                        \
  }

TRIAX_WGMMA_SHARED(bf16, "bf16", 64, "%32", "%33", "%34")
TRIAX_WGMMA_SHARED(bf16, "bf16", 128, "%64", "%65", "%66")
TRIAX_WGMMA_REGISTERS(bf16, "bf16", 64, "%32, %33, %34, %35", "%36", "%37")
TRIAX_WGMMA_REGISTERS(bf16, "bf16", 96, "%48, %49, %50, %51", "%52", "%53")
TRIAX_WGMMA_REGISTERS(bf16, "bf16", 128, "%64, %65, %66, %67", "%68", "%69")
TRIAX_WGMMA_SHARED(fp16, "f16", 64, "%32", "%33", "%34")
TRIAX_WGMMA_SHARED(fp16, "f16", 128, "%64", "%65", "%66")
TRIAX_WGMMA_REGISTERS(fp16, "f16", 64, "%32, %33, %34, %35", "%36", "%37")
TRIAX_WGMMA_REGISTERS(fp16, "f16", 96, "%48, %49, %50, %51", "%52", "%53")
TRIAX_WGMMA_REGISTERS(fp16, "f16", 128, "%64, %65, %66, %67", "%68", "%69")

#undef TRIAX_WGMMA_SHARED
#undef TRIAX_WGMMA_REGISTERS
#undef TRIAX_N64
#undef TRIAX_N96
#undef TRIAX_N128
#undef TRIAX_D4
#undef TRIAX_D16
#undef TRIAX_D64
#undef TRIAX_D96
#undef TRIAX_D128

}  // namespace triax::kernels

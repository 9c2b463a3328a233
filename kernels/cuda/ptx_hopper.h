// Hopper's machine instructions that have no C++ name: barriers in shared memory that count bytes, copies of boxes of a
// tensor by the copy engine (TMA), and matrix products of a warpgroup (wgmma, ptx_wgmma.h). PTX ISA 8.0, sm_90a. The
// host's versions are in tests/emulated/include/simt_hopper.h.
#pragma once

#include "kernels/cuda/ptx.h"

// Kernels that need these instructions have a body in the code for 9.0a and in the emulation, and none elsewhere.
#if defined(TRIAX_EMULATED) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TRIAX_HOPPER_CODE 1
#endif

#if defined(TRIAX_EMULATED)
#include <simt_hopper.h>
#else
#include <cuda.h>

#include "kernels/cuda/ptx_wgmma.h"

namespace triax::kernels {

/// A barrier in shared memory. Its phase ends when `arrivals` threads have arrived and the bytes that were announced
/// have come; the next phase begins at once.
__device__ __forceinline__ void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
/// Makes this thread's writes to shared memory, barriers too, visible to the copy engine and to wgmma.
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Arrives and announces bytes that copies will bring in this phase.
__device__ __forceinline__ void barrier_arrive_expecting(uint64_t* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
/// Waits for the end of the phase of this parity: 0 for the first, third .. phase. The phase before the first one
/// counts as ended.
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// The box of a 4-dimensional tensor at (c0, c1, c2, c3) to shared memory, zeros where it lies outside; by one thread.
/// Its bytes, those of the zeros too, count for the barrier.
__device__ __forceinline__ void copy_box(void* shared, const CUtensorMap* tensor, int c0, int c1, int c2, int c3,
                                         uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared_address(shared)),
      "l"(tensor), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(shared_address(barrier))
      : "memory");
}

/// Registers of each thread of this warpgroup from here on; all four warps call it.
template <int N>
__device__ __forceinline__ void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

}  // namespace triax::kernels
#endif

namespace triax::kernels {

/// How wgmma finds an operand in shared memory: rows of RowBytes, 128 or 64, in the swizzle of that size (16-byte
/// chunk c of row r lies at chunk c ^ r % 8, or c ^ r / 2 % 4), eight rows following the eight before. `part_bytes` is
/// the distance to the next RowBytes columns, where an operand with its columns contiguous in N has more.
template <int RowBytes>
__device__ __forceinline__ uint64_t matrix_descriptor(unsigned address, unsigned part_bytes) {
  static_assert(RowBytes == 128 || RowBytes == 64);
  constexpr uint64_t kSwizzle = RowBytes == 128 ? 1 : 2, kEightRows = 8 * RowBytes / 16;
  return kSwizzle << 62 | kEightRows << 32 | static_cast<uint64_t>(part_bytes / 16) << 16 | (address & 0x3ffff) / 16;
}

}  // namespace triax::kernels

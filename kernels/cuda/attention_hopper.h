// Pieces of the attention kernels for Hopper: tiles that the copy engine lays down swizzled, and products of a
// warpgroup's 64 rows with them. A block is two warpgroups that compute, 64 rows each, and one whose first thread feeds
// them. A tile of R rows is Dim / 64 parts of 64 columns (Dim / 32 of 32 where 64 does not divide Dim), each R rows of
// 128 (64) bytes.
#pragma once

#include "kernels/cuda/attention_problem.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/ptx_hopper.h"
#include "kernels/cuda/tensor_map.h"

namespace triax::kernels {

inline constexpr int kGroupThreads = 128, kGroupRows = 64;
inline constexpr int kHopperGroups = 2, kHopperRows = kHopperGroups * kGroupRows;  // that compute
inline constexpr int kHopperThreads = (kHopperGroups + 1) * kGroupThreads;
inline constexpr int kHopperWarps = kHopperGroups * 4;
/// Swizzles repeat every 1024 bytes of shared memory at most; dynamic shared memory begins at a multiple of 16.
inline constexpr unsigned kSwizzleAlignment = 1024;

template <int Dim>
inline constexpr int kPartCols = Dim % 64 == 0 ? 64 : 32;
template <int Dim, int Rows>
inline constexpr unsigned kTileBytes = Rows* Dim * 2;

__device__ __forceinline__ unsigned char* aligned_tiles(unsigned char* memory) {
  return memory + (kSwizzleAlignment - shared_address(memory) % kSwizzleAlignment) % kSwizzleAlignment;
}

/// By one thread: rows first .. of a head of a sample to a tile. kTileBytes count for the barrier.
template <int Dim, int Rows>
__device__ __forceinline__ void copy_tile(unsigned char* tile, const CUtensorMap& map, int head, int sample, int first,
                                          uint64_t* barrier) {
  constexpr int kCols = kPartCols<Dim>;
  TRIAX_UNROLL
  for (int part = 0; part < Dim / kCols; ++part) {
    copy_box(tile + part * Rows * kCols * 2, &map, part * kCols, head, sample, first, barrier);
  }
}

/// Columns 16 k .. 16 k + 15 of a tile's rows from `row` (a multiple of 8) on, contiguous in k.
template <int Dim, int Rows>
__device__ __forceinline__ uint64_t rows_of(unsigned tile, int row, int k) {
  constexpr int kCols = kPartCols<Dim>, kRowBytes = 2 * kCols;
  return matrix_descriptor<kRowBytes>(tile + 16 * k / kCols * Rows * kRowBytes + row * kRowBytes + 16 * k % kCols * 2,
                                      Rows * kRowBytes);
}
/// Rows 16 k .. 16 k + 15 of a tile, all columns, contiguous in n.
template <int Dim, int Rows>
__device__ __forceinline__ uint64_t columns_of(unsigned tile, int k) {
  constexpr int kRowBytes = 2 * kPartCols<Dim>;
  return matrix_descriptor<kRowBytes>(tile + 16 * k * kRowBytes, Rows * kRowBytes);
}

/// s[64, Cols] = left[row .., :] right^T; asynchronous.
template <class T, int Dim, int Cols>
__device__ __forceinline__ void multiply_tiles(float (&s)[Cols / 8][4], unsigned left, int row, unsigned right) {
  TRIAX_UNROLL
  for (int k = 0; k < Dim / 16; ++k) {
    wgmma_shared<T>(s, rows_of<Dim, kHopperRows>(left, row, k), rows_of<Dim, Cols>(right, 0, k), k > 0);
  }
}

/// p rounded to T, as the left operand of products with Tiles / 2 times 16 rows.
template <class T, int Tiles>
__device__ __forceinline__ void pack_left(uint32_t (&a)[Tiles / 2][4], const float (&p)[Tiles][4]) {
  TRIAX_UNROLL
  for (int k = 0; k < Tiles / 2; ++k) {
    TRIAX_UNROLL
    for (int i = 0; i < 4; ++i) a[k][i] = pack<T>(p[2 * k + i / 2][i % 2 * 2], p[2 * k + i / 2][i % 2 * 2 + 1]);
  }
}

/// sum[64, Dim] += a[64, Rows] tile[Rows, Dim]; asynchronous.
template <class T, int Dim, int Rows>
__device__ __forceinline__ void multiply_packed(float (&sum)[Dim / 8][4], const uint32_t (&a)[Rows / 16][4],
                                                unsigned tile) {
  TRIAX_UNROLL
  for (int k = 0; k < Rows / 16; ++k) wgmma_registers<T>(sum, a[k], columns_of<Dim, Rows>(tile, k));
}

/// One arrival of a warp whose lanes have all come here.
__device__ __forceinline__ void release(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) barrier_arrive(barrier);
}

/// The map of q, k, v or dout for tiles of `rows` rows.
template <class T, int Dim>
CUtensorMap tile_map(const HeadRows<const T>& tensor, int heads, const AttentionShape& shape, int rows) {
  constexpr DType kType = std::is_same_v<T, bf16> ? DType::BFloat16 : DType::Float16;
  return head_map(kType, tensor.data, tensor.stride, heads, shape, {rows, kPartCols<Dim>});
}

/// Allows a kernel its shared memory and launches it.
template <class Kernel, class Args>
void launch_hopper(Kernel kernel, dim3 grid, size_t shared_bytes, cudaStream_t stream, const Args& args) {
  TRIAX_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  TRIAX_LAUNCH(kernel, grid, kHopperThreads, shared_bytes, stream, args);
}

}  // namespace triax::kernels

// Pieces of the tensor-core attention kernels: tiles of rows in shared memory, and products of a warp's 16 rows with
// them. A tile's rows are padded by 16 bytes, so that the eight rows of a matrix load fall on different banks.
#pragma once

#include "kernels/cuda/attention_problem.h"
#include "kernels/cuda/ptx.h"

namespace triax::kernels {

inline constexpr int kAttentionThreads = 128;  // 4 warps, each with 16 rows of the block's 64
inline constexpr int kAttentionRows = 64;

/// Elements from one row of a tile to the next; Dim is the head dimension rounded up to what the kernel is made for.
template <int Dim>
inline constexpr int kPitch = Dim + 8;

/// Rows first .. first + N - 1 of a head to shared memory, zeros beyond the sequence and the head dimension;
/// asynchronous.
template <class T, int Dim, int N>
__device__ __forceinline__ void load_tile(T* tile, const HeadRun<const T>& run, int first,
                                          const AttentionShape& shape) {
  constexpr int kChunks = Dim / 8;
  for (int i = threadIdx.x; i < N * kChunks; i += kAttentionThreads) {
    const int r = i / kChunks, c = i % kChunks * 8;
    const bool there = first + r < shape.seq && c < shape.dim;
    copy_async_16(tile + r * kPitch<Dim> + c, there ? run.at(first + r) + c : run.data, there);
  }
}

/// a = rows 0 .. 15, columns 16 k .. 16 k + 15 of `rows`, as the left operand of mma.
template <class T, int Dim>
__device__ __forceinline__ void load_left(uint32_t (&a)[4], const T* rows, int k) {
  const int lane = threadIdx.x % kWarp;
  load_matrices(a, rows + (lane % 8 + lane / 8 % 2 * 8) * kPitch<Dim> + 16 * k + lane / 16 * 8);
}

/// s[16, 8 Tiles] += a[16, 16 k ..] tile[8 Tiles, 16 k ..]^T.
template <class T, int Dim, int Tiles>
__device__ __forceinline__ void multiply_rows(float (&s)[Tiles][4], const uint32_t (&a)[4], const T* tile, int k) {
  const int lane = threadIdx.x % kWarp;
  const T* const at = tile + (lane % 8 + lane / 16 * 8) * kPitch<Dim> + 16 * k + lane / 8 % 2 * 8;
  TRIAX_UNROLL
  for (int n = 0; n < Tiles; n += 2) {
    uint32_t b[4];
    load_matrices(b, at + 8 * n * kPitch<Dim>);
    mma_16x8x16<T>(s[n], a, b[0], b[1]);
    mma_16x8x16<T>(s[n + 1], a, b[2], b[3]);
  }
}

/// sum[16, Dim] += p[16, 8 Tiles] tile[8 Tiles, Dim], p rounded to T.
template <class T, int Dim, int Tiles>
__device__ __forceinline__ void multiply_columns(float (&sum)[Dim / 8][4], const float (&p)[Tiles][4], const T* tile) {
  const int lane = threadIdx.x % kWarp;
  const T* const at = tile + (lane % 8 + lane / 8 % 2 * 8) * kPitch<Dim> + lane / 16 * 8;
  TRIAX_UNROLL
  for (int k = 0; k < Tiles; k += 2) {
    // What mma leaves of two neighbouring 8-column tiles is what it takes as a left operand.
    const uint32_t a[4] = {pack<T>(p[k][0], p[k][1]), pack<T>(p[k][2], p[k][3]), pack<T>(p[k + 1][0], p[k + 1][1]),
                           pack<T>(p[k + 1][2], p[k + 1][3])};
    TRIAX_UNROLL
    for (int n = 0; n < Dim / 8; n += 2) {
      uint32_t b[4];
      load_matrices_transposed(b, at + 8 * k * kPitch<Dim> + 8 * n);
      mma_16x8x16<T>(sum[n], a, b[0], b[1]);
      mma_16x8x16<T>(sum[n + 1], a, b[2], b[3]);
    }
  }
}

template <int Tiles>
__device__ __forceinline__ void clear(float (&s)[Tiles][4]) {
  TRIAX_UNROLL
  for (int n = 0; n < Tiles; ++n) {
    TRIAX_UNROLL
    for (int e = 0; e < 4; ++e) s[n][e] = 0;
  }
}

/// A warp's 16 rows, from row `first` on, to memory: sum[row g] * factor0, sum[row g + 8] * factor1.
template <class T, int Dim>
__device__ __forceinline__ void store_rows(const HeadRun<T>& run, int first, const AttentionShape& shape,
                                           const float (&sum)[Dim / 8][4], float factor0, float factor1) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  TRIAX_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = first + g + 8 * half;
    if (row >= shape.seq) continue;
    const float factor = half == 0 ? factor0 : factor1;
    TRIAX_UNROLL
    for (int n = 0; n < Dim / 8; ++n) {
      if (8 * n < shape.dim) {
        *reinterpret_cast<uint32_t*>(run.at(row) + 8 * n + 2 * t) =
            pack<T>(sum[n][2 * half] * factor, sum[n][2 * half + 1] * factor);
      }
    }
  }
}

/// f(std::integral_constant) with the smallest of 64, 96, 128 that holds the head dimension.
template <class F>
void with_padded_dim(int dim, F&& f) {
  if (dim <= 64) return f(std::integral_constant<int, 64>());
  if (dim <= 96) return f(std::integral_constant<int, 96>());
  return f(std::integral_constant<int, 128>());
}

}  // namespace triax::kernels

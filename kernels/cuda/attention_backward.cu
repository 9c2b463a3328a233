// Flash attention backward on tensor cores (arXiv 2205.14135, algorithm 4), in two deterministic passes instead of one
// with atomics on dq: with p = exp(scale s - lse), s = q k^T, dp = dout v^T and ds = p (mask dp - delta),
//   over query rows: dq = scale ds k;   over key rows: dk = scale ds^T q, dv = (mask p)^T dout, summed over the query
//   heads
// that share the key head, in order. One kernel makes both: it takes 64 rows of (q, dout) or of (k, v), walks the other
// pair 32 rows at a time (two stages of asynchronous copies) and recomputes p, transposed in the second case.
// Operations: 14 b a s^2 d, half of them skipped by causality (10 is what the formulas need: s and dp are made twice).
#include "kernels/cuda/attention_dropout.h"
#include "kernels/cuda/attention_gradient.h"
#include "kernels/cuda/attention_tile.h"

namespace triax::kernels {
namespace {

constexpr int kCols = 32, kColTiles = kCols / 8;

/// Step i of a pass: tile i % col_tiles of head i / col_tiles, to the two right-hand tiles of a stage.
template <class T, int Dim, bool KeyRows>
__device__ __forceinline__ void load_right(const AttentionBackwardArgs<T>& a, const GradientPass& pass, int sample,
                                           int i, T* scores, T* values) {
  const AttentionShape& shape = a.shape;
  const int head = pass.head(i), col0 = pass.col0<kCols>(i);
  if constexpr (KeyRows) {
    load_tile<T, Dim, kCols>(scores, head_run(a.q, shape, sample, head), col0, shape);
    load_tile<T, Dim, kCols>(values, head_run(a.dout, shape, sample, head), col0, shape);
  } else {
    const int kv_head = head / (shape.heads / shape.kv_heads);
    load_tile<T, Dim, kCols>(scores, head_run(a.k, shape, sample, kv_head), col0, shape);
    load_tile<T, Dim, kCols>(values, head_run(a.v, shape, sample, kv_head), col0, shape);
  }
}

template <int Dim>
inline constexpr size_t kGradientBytes = 2 * (kAttentionRows + 2 * kCols) * kPitch<Dim> * 2;  // 68 KiB for 128

template <class T, int Dim, bool KeyRows>
__global__ void __launch_bounds__(kAttentionThreads, 2) attention_gradient(AttentionBackwardArgs<T> a) {
  TRIAX_DYNAMIC_SHARED(memory);
  __shared__ AttentionDropout dropout;
  constexpr int kLeft = kAttentionRows * kPitch<Dim>, kRight = kCols * kPitch<Dim>;
  T* const left_scores = reinterpret_cast<T*>(memory);
  T* const left_values = left_scores + kLeft;
  T* const right = left_values + kLeft;  // [stage][scores, values]
  const AttentionShape& shape = a.shape;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  // The longest walks first: early keys, late queries.
  const int tile = static_cast<int>(KeyRows ? blockIdx.x : gridDim.x - 1 - blockIdx.x), sample = blockIdx.z;
  const GradientPass pass = gradient_pass<KeyRows, kAttentionRows, kCols>(shape, tile, blockIdx.y);
  const int steps = pass.steps(), row0 = pass.row0 + warp * 16;

  const HeadRun<const T> score_rows = head_run(KeyRows ? a.k : a.q, shape, sample, blockIdx.y);
  const HeadRun<const T> value_rows = head_run(KeyRows ? a.v : a.dout, shape, sample, blockIdx.y);
  load_tile<T, Dim, kAttentionRows>(left_scores, score_rows, pass.row0, shape);
  load_tile<T, Dim, kAttentionRows>(left_values, value_rows, pass.row0, shape);
  load_right<T, Dim, KeyRows>(a, pass, sample, 0, right, right + kRight);
  copies_commit();
  QueryStatistics of_row[2] = {};
  if constexpr (!KeyRows) {
    of_row[0] = query_statistics(shape, a.lse, a.delta, sample, pass.head0, row0 + g);
    of_row[1] = query_statistics(shape, a.lse, a.delta, sample, pass.head0, row0 + g + 8);
  }
  prepare_dropout(dropout, shape, sample);
  float from_scores[Dim / 8][4], from_values[KeyRows ? Dim / 8 : 1][4];
  clear(from_scores);
  clear(from_values);
  for (int i = 0; i < steps; ++i) {
    T* const scores = right + i % 2 * 2 * kRight;
    T* const values = scores + kRight;
    if (i + 1 < steps) {
      T* const next = right + (i + 1) % 2 * 2 * kRight;
      load_right<T, Dim, KeyRows>(a, pass, sample, i + 1, next, next + kRight);
    }
    copies_commit();
    copies_wait<1>();
    __syncthreads();
    const int head = pass.head(i), col0 = pass.col0<kCols>(i);
    float s[kColTiles][4], dp[kColTiles][4];
    clear(s);
    clear(dp);
    TRIAX_UNROLL
    for (int k = 0; k < Dim / 16; ++k) {
      uint32_t left[4];
      load_left<T, Dim>(left, left_scores + warp * 16 * kPitch<Dim>, k);
      multiply_rows<T, Dim>(s, left, scores, k);
      load_left<T, Dim>(left, left_values + warp * 16 * kPitch<Dim>, k);
      multiply_rows<T, Dim>(dp, left, values, k);
    }
    uint32_t keep = 0xffffffffu;
    if (shape.dropout.active) {
      const int global_head = shape.head_begin + head;
      keep = KeyRows ? keep_bits_key_rows<kColTiles>(dropout, global_head, row0, col0)
                     : keep_bits_query_rows<kColTiles>(dropout, global_head, row0, col0);
    }
    score_gradients<KeyRows>(s, dp, row0, col0, shape, keep, [&](int n, int e) {
      if constexpr (KeyRows) {
        return query_statistics(shape, a.lse, a.delta, sample, head, col0 + 8 * n + 2 * t + (e & 1));
      } else {
        return of_row[e / 2];
      }
    });
    multiply_columns<T, Dim>(from_scores, dp, scores);
    if constexpr (KeyRows) multiply_columns<T, Dim>(from_values, s, values);
    __syncthreads();  // all have read this stage
  }
  if constexpr (KeyRows) {
    store_rows<T, Dim>(head_run(a.dk, shape, sample, blockIdx.y), row0, shape, from_scores, shape.scale, shape.scale);
    store_rows<T, Dim>(head_run(a.dv, shape, sample, blockIdx.y), row0, shape, from_values, 1, 1);
  } else {
    store_rows<T, Dim>(head_run(a.dq, shape, sample, blockIdx.y), row0, shape, from_scores, shape.scale, shape.scale);
  }
}

template <class T, int Dim, bool KeyRows>
void launch_pass(const AttentionBackwardArgs<T>& args, cudaStream_t stream) {
  const dim3 grid(grid_of(args.shape.seq, kAttentionRows),
                  static_cast<unsigned>(KeyRows ? args.shape.kv_heads : args.shape.heads),
                  static_cast<unsigned>(args.shape.batch));
  // Above 48 KiB a kernel needs permission.
  TRIAX_CUDA(cudaFuncSetAttribute(attention_gradient<T, Dim, KeyRows>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kGradientBytes<Dim>)));
  TRIAX_LAUNCH((attention_gradient<T, Dim, KeyRows>), grid, kAttentionThreads, kGradientBytes<Dim>, stream, args);
}

}  // namespace

template <class T>
void launch_attention_backward(const AttentionBackwardArgs<T>& args, cudaStream_t stream) {
  with_padded_dim(args.shape.dim, [&](auto padded) {
    launch_pass<T, decltype(padded)::value, true>(args, stream);
    launch_pass<T, decltype(padded)::value, false>(args, stream);
  });
}

template void launch_attention_backward<bf16>(const AttentionBackwardArgs<bf16>&, cudaStream_t);
template void launch_attention_backward<fp16>(const AttentionBackwardArgs<fp16>&, cudaStream_t);

}  // namespace triax::kernels

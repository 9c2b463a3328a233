// Flash attention with fp32 multiply-adds: for fp32, and for 16-bit types whose head dimension or alignment tensor
// cores do not take. Formulas and passes as in attention_forward.cu and attention_backward.cu. A block of 4 warps takes
// 32 rows, a warp 8 of them, and walks the other side 32 rows at a time; in a score row lane l stands for column l, in
// an output row for columns l, l + 32, l + 64, l + 96. Tiles lie in shared memory as fp32.
#include "kernels/cuda/attention_dropout.h"
#include "kernels/cuda/block.h"
#include "kernels/cuda/ptx.h"

namespace triax::kernels {
namespace {

constexpr int kSide = 32, kThreads = 128, kRowsOfWarp = 8, kDims = kPlainDim / 32;

/// An odd pitch: lanes that read the same column of 32 rows meet 32 banks.
__device__ __host__ __forceinline__ constexpr int plain_pitch(int dim) { return dim | 1; }

template <class T>
__device__ __forceinline__ void load_plain_tile(float* tile, const HeadRun<const T>& run, int first,
                                                const AttentionShape& shape) {
  for (int i = threadIdx.x; i < kSide * shape.dim; i += kThreads) {
    const int r = i / shape.dim, c = i - r * shape.dim;
    tile[r * plain_pitch(shape.dim) + c] = first + r < shape.seq ? to_float(run.at(first + r)[c]) : 0.0f;
  }
}

/// Row `row` of one tile times row `lane` of the other.
__device__ __forceinline__ float dot_with_lane(const float* tile, int row, const float* other, int dim) {
  const int pitch = plain_pitch(dim), lane = threadIdx.x % kWarp;
  float sum = 0;
  TRIAX_UNROLL_BY_4
  for (int c = 0; c < dim; ++c) sum += tile[row * pitch + c] * other[lane * pitch + c];
  return sum;
}

/// sum[columns of this lane] += over lanes j: weight_j * row j of the tile.
__device__ __forceinline__ void add_weighted_rows(float (&sum)[kDims], float weight, const float* tile, int dim) {
  __shared__ float weights[kThreads];
  const int pitch = plain_pitch(dim), lane = threadIdx.x % kWarp, warp = threadIdx.x - lane;
  __syncwarp();  // all have read the row before
  weights[threadIdx.x] = weight;
  __syncwarp();
  TRIAX_UNROLL_BY_4
  for (int j = 0; j < kSide; ++j) {
    const float w = weights[warp + j];
    TRIAX_UNROLL
    for (int d = 0; d < kDims; ++d) {
      if (lane + 32 * d < dim) sum[d] += w * tile[j * pitch + lane + 32 * d];
    }
  }
}

template <class T>
__device__ __forceinline__ void store_plain_row(T* row, const float (&sum)[kDims], float factor, int dim) {
  const int lane = threadIdx.x % kWarp;
  TRIAX_UNROLL
  for (int d = 0; d < kDims; ++d) {
    if (lane + 32 * d < dim) row[lane + 32 * d] = from_float<T>(sum[d] * factor);
  }
}

__device__ __forceinline__ float dropout_mask(const AttentionShape& shape, const AttentionDropout& dropout, int head,
                                              int query, int key) {
  if (!shape.dropout.active) return 1;
  return keeps_score(dropout, shape.head_begin + head, query, key) ? shape.dropout.keep_scale : 0.0f;
}

template <class T>
__global__ void __launch_bounds__(kThreads) plain_forward(AttentionForwardArgs<T> a) {
  TRIAX_DYNAMIC_SHARED(memory);
  __shared__ AttentionDropout dropout;
  const AttentionShape& shape = a.shape;
  const int pitch = plain_pitch(shape.dim), warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  float* const q = reinterpret_cast<float*>(memory);
  float* const k = q + kSide * pitch;
  float* const v = k + kSide * pitch;
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x), head = blockIdx.y, sample = blockIdx.z;
  const int kv_head = head / (shape.heads / shape.kv_heads), row0 = tile * kSide;
  prepare_dropout(dropout, shape, sample);
  load_plain_tile(q, head_run(a.q, shape, sample, head), row0, shape);
  float max[kRowsOfWarp], sum[kRowsOfWarp], o[kRowsOfWarp][kDims];
  TRIAX_UNROLL
  for (int r = 0; r < kRowsOfWarp; ++r) {
    max[r] = -INFINITY;
    sum[r] = 0;
    TRIAX_UNROLL
    for (int d = 0; d < kDims; ++d) o[r][d] = 0;
  }
  for (int key0 = 0; key0 <= row0; key0 += kSide) {
    __syncthreads();
    load_plain_tile(k, head_run(a.k, shape, sample, kv_head), key0, shape);
    load_plain_tile(v, head_run(a.v, shape, sample, kv_head), key0, shape);
    __syncthreads();
    TRIAX_UNROLL
    for (int r = 0; r < kRowsOfWarp; ++r) {
      const int query = row0 + warp * kRowsOfWarp + r, key = key0 + lane;
      const float score = dot_with_lane(q, warp * kRowsOfWarp + r, k, shape.dim) * shape.scale;
      const bool seen = key <= query;
      const float bound = fmaxf(max[r], warp_max(seen ? score : -INFINITY));
      const float shrink = expf(max[r] - bound), p = seen ? expf(score - bound) : 0.0f;
      max[r] = bound;
      sum[r] = sum[r] * shrink + warp_sum(p);
      TRIAX_UNROLL
      for (int d = 0; d < kDims; ++d) o[r][d] *= shrink;
      add_weighted_rows(o[r], p * dropout_mask(shape, dropout, head, query, key), v, shape.dim);
    }
  }
  TRIAX_UNROLL
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int query = row0 + warp * kRowsOfWarp + r;
    if (query >= shape.seq) continue;
    store_plain_row(head_run(a.o, shape, sample, head).at(query), o[r], 1 / sum[r], shape.dim);
    if (lane == 0) {
      a.lse[head * shape.rows() + static_cast<int64_t>(query) * shape.batch + sample] = max[r] + logf(sum[r]);
    }
  }
}

/// KeyRows: rows are keys (dk, dv), columns queries; else rows are queries (dq), columns keys.
template <class T, bool KeyRows>
__global__ void __launch_bounds__(kThreads) plain_gradient(AttentionBackwardArgs<T> a) {
  TRIAX_DYNAMIC_SHARED(memory);
  __shared__ AttentionDropout dropout;
  const AttentionShape& shape = a.shape;
  const int tile_size = kSide * plain_pitch(shape.dim), warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  float* const left_scores = reinterpret_cast<float*>(memory);
  float *const left_values = left_scores + tile_size, *const scores = left_values + tile_size,
               *const values = scores + tile_size;
  const int row0 = blockIdx.x * kSide, sample = blockIdx.z, per_kv = shape.heads / shape.kv_heads;
  const int head0 = KeyRows ? blockIdx.y * per_kv : blockIdx.y, kv_head = KeyRows ? blockIdx.y : blockIdx.y / per_kv;
  prepare_dropout(dropout, shape, sample);
  load_plain_tile(left_scores, head_run(KeyRows ? a.k : a.q, shape, sample, blockIdx.y), row0, shape);
  load_plain_tile(left_values, head_run(KeyRows ? a.v : a.dout, shape, sample, blockIdx.y), row0, shape);
  float from_scores[kRowsOfWarp][kDims], from_values[kRowsOfWarp][kDims];
  TRIAX_UNROLL
  for (int r = 0; r < kRowsOfWarp; ++r) {
    TRIAX_UNROLL
    for (int d = 0; d < kDims; ++d) from_scores[r][d] = from_values[r][d] = 0;
  }
  for (int head = head0; head < head0 + (KeyRows ? per_kv : 1); ++head) {
    const HeadRun<const T> right_scores =
        KeyRows ? head_run(a.q, shape, sample, head) : head_run(a.k, shape, sample, kv_head);
    const HeadRun<const T> right_values =
        KeyRows ? head_run(a.dout, shape, sample, head) : head_run(a.v, shape, sample, kv_head);
    const int end = KeyRows ? shape.seq : row0 + 1;
    for (int col0 = KeyRows ? row0 : 0; col0 < end; col0 += kSide) {
      __syncthreads();
      load_plain_tile(scores, right_scores, col0, shape);
      load_plain_tile(values, right_values, col0, shape);
      __syncthreads();
      TRIAX_UNROLL
      for (int r = 0; r < kRowsOfWarp; ++r) {
        const int row = row0 + warp * kRowsOfWarp + r, col = col0 + lane;
        const int query = KeyRows ? col : row, key = KeyRows ? row : col;
        const float score = dot_with_lane(left_scores, warp * kRowsOfWarp + r, scores, shape.dim) * shape.scale;
        const float dp = dot_with_lane(left_values, warp * kRowsOfWarp + r, values, shape.dim);
        float p = 0, ds = 0;
        if (key <= query && query < shape.seq) {
          const int64_t at = head * shape.rows() + static_cast<int64_t>(query) * shape.batch + sample;
          const float mask = dropout_mask(shape, dropout, head, query, key), exact = expf(score - a.lse[at]);
          p = exact * mask;
          ds = exact * (dp * mask - a.delta[at]);
        }
        add_weighted_rows(from_scores[r], ds, scores, shape.dim);
        if constexpr (KeyRows) add_weighted_rows(from_values[r], p, values, shape.dim);
      }
    }
  }
  TRIAX_UNROLL
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const int row = row0 + warp * kRowsOfWarp + r;
    if (row >= shape.seq) continue;
    const HeadRun<T> out = head_run(KeyRows ? a.dk : a.dq, shape, sample, blockIdx.y);
    store_plain_row(out.at(row), from_scores[r], shape.scale, shape.dim);
    if constexpr (KeyRows) {
      store_plain_row(head_run(a.dv, shape, sample, blockIdx.y).at(row), from_values[r], 1, shape.dim);
    }
  }
}

template <class Kernel>
void allow_shared(Kernel kernel, size_t bytes) {
  TRIAX_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

}  // namespace

template <class T>
void launch_plain_forward(const AttentionForwardArgs<T>& args, cudaStream_t stream) {
  const AttentionShape& s = args.shape;
  const size_t bytes = 3 * sizeof(float) * kSide * static_cast<size_t>(plain_pitch(s.dim));
  const dim3 grid(grid_of(s.seq, kSide), static_cast<unsigned>(s.heads), static_cast<unsigned>(s.batch));
  allow_shared(plain_forward<T>, bytes);
  TRIAX_LAUNCH((plain_forward<T>), grid, kThreads, bytes, stream, args);
}

template <class T>
void launch_plain_backward(const AttentionBackwardArgs<T>& args, cudaStream_t stream) {
  const AttentionShape& s = args.shape;
  const size_t bytes = 4 * sizeof(float) * kSide * static_cast<size_t>(plain_pitch(s.dim));
  dim3 grid(grid_of(s.seq, kSide), static_cast<unsigned>(s.kv_heads), static_cast<unsigned>(s.batch));
  allow_shared(plain_gradient<T, true>, bytes);
  TRIAX_LAUNCH((plain_gradient<T, true>), grid, kThreads, bytes, stream, args);
  grid.y = static_cast<unsigned>(s.heads);
  allow_shared(plain_gradient<T, false>, bytes);
  TRIAX_LAUNCH((plain_gradient<T, false>), grid, kThreads, bytes, stream, args);
}

template void launch_plain_forward<float>(const AttentionForwardArgs<float>&, cudaStream_t);
template void launch_plain_forward<bf16>(const AttentionForwardArgs<bf16>&, cudaStream_t);
template void launch_plain_forward<fp16>(const AttentionForwardArgs<fp16>&, cudaStream_t);
template void launch_plain_backward<float>(const AttentionBackwardArgs<float>&, cudaStream_t);
template void launch_plain_backward<bf16>(const AttentionBackwardArgs<bf16>&, cudaStream_t);
template void launch_plain_backward<fp16>(const AttentionBackwardArgs<fp16>&, cudaStream_t);

}  // namespace triax::kernels

// Flash attention forward on tensor cores: o = softmax(scale q k^T, causal) v and lse = log sum exp of each row, never
// an s x s matrix (arXiv 2307.08691, algorithm 1). A block takes 64 queries of one head, a warp 16 of them with q in
// registers; keys and values come 64 at a time, k of the next step while this one's softmax runs, v while q k^T does.
// Operations: 4 b a s^2 d, half of them skipped by causality. Bytes: q, o once; k and v once per 64 queries (from L2).
#include "kernels/cuda/attention_dropout.h"
#include "kernels/cuda/attention_tile.h"

namespace triax::kernels {
namespace {

constexpr int kKeys = 64, kKeyTiles = kKeys / 8;

/// The running maximum and sum of rows g and g + 8 of a warp.
struct OnlineSoftmax {
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
};

/// s becomes exp(scale (s - max)); o is rescaled to the new maximum. `sum` is this lane's share of the row's.
template <int Dim>
__device__ __forceinline__ void softmax_step(OnlineSoftmax& state, float (&s)[kKeyTiles][4], float (&o)[Dim / 8][4],
                                             float scale_log2) {
  TRIAX_UNROLL
  for (int half = 0; half < 2; ++half) {
    float max = state.max[half];
    TRIAX_UNROLL
    for (int n = 0; n < kKeyTiles; ++n) max = fmaxf(max, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
    const float shrink = fast_exp2((state.max[half] - max) * scale_log2);
    const float shift = max * scale_log2;
    state.max[half] = max;
    float sum = 0;
    TRIAX_UNROLL
    for (int n = 0; n < kKeyTiles; ++n) {
      TRIAX_UNROLL
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        s[n][e] = fast_exp2(s[n][e] * scale_log2 - shift);
        sum += s[n][e];
      }
    }
    state.sum[half] = state.sum[half] * shrink + sum;
    TRIAX_UNROLL
    for (int n = 0; n < Dim / 8; ++n) {
      o[n][2 * half] *= shrink;
      o[n][2 * half + 1] *= shrink;
    }
  }
}

template <class T, int Dim>
__global__ void __launch_bounds__(kAttentionThreads, 2) attention_forward_tile(AttentionForwardArgs<T> a) {
  TRIAX_DYNAMIC_SHARED(memory);
  __shared__ AttentionDropout dropout;
  T* const k_tile = reinterpret_cast<T*>(memory);
  T* const v_tile = k_tile + kKeys * kPitch<Dim>;
  const AttentionShape& shape = a.shape;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  // The longest rows first.
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x), head = blockIdx.y, sample = blockIdx.z;
  const int kv_head = head / (shape.heads / shape.kv_heads);
  const int row0 = tile * kAttentionRows + warp * 16;  // of this warp
  const HeadRun<const T> k = head_run(a.k, shape, sample, kv_head), v = head_run(a.v, shape, sample, kv_head);

  prepare_dropout(dropout, shape, sample);
  uint32_t q[Dim / 16][4];
  load_tile<T, Dim, kAttentionRows>(v_tile, head_run(a.q, shape, sample, head), tile * kAttentionRows, shape);
  copies_commit();
  load_tile<T, Dim, kKeys>(k_tile, k, 0, shape);
  copies_commit();
  copies_wait<1>();
  __syncthreads();
  TRIAX_UNROLL
  for (int i = 0; i < Dim / 16; ++i) load_left<T, Dim>(q[i], v_tile + warp * 16 * kPitch<Dim>, i);

  const float scale_log2 = shape.scale * kLog2e;
  OnlineSoftmax state;
  float o[Dim / 8][4];
  clear(o);
  for (int step = 0; step <= tile; ++step) {
    const int key0 = step * kKeys;
    __syncthreads();  // all have read q, or the last step's v
    load_tile<T, Dim, kKeys>(v_tile, v, key0, shape);
    copies_commit();
    copies_wait<1>();
    __syncthreads();  // k is here
    float s[kKeyTiles][4];
    clear(s);
    TRIAX_UNROLL
    for (int i = 0; i < Dim / 16; ++i) multiply_rows<T, Dim>(s, q[i], k_tile, i);
    __syncthreads();  // all have read k
    if (step < tile) load_tile<T, Dim, kKeys>(k_tile, k, key0 + kKeys, shape);
    copies_commit();
    if (step == tile) {  // the diagonal; keys beyond the sequence lie behind every query within it
      TRIAX_UNROLL
      for (int n = 0; n < kKeyTiles; ++n) {
        TRIAX_UNROLL
        for (int e = 0; e < 4; ++e) {
          if (key0 + 8 * n + 2 * t + (e & 1) > row0 + g + (e & 2 ? 8 : 0)) s[n][e] = -INFINITY;
        }
      }
    }
    softmax_step<Dim>(state, s, o, scale_log2);
    if (shape.dropout.active) {
      const uint32_t keep = keep_bits_query_rows<kKeyTiles>(dropout, shape.head_begin + head, row0, key0);
      TRIAX_UNROLL
      for (int n = 0; n < kKeyTiles; ++n) {
        TRIAX_UNROLL
        for (int e = 0; e < 4; ++e) {
          if ((keep >> (4 * n + e) & 1) == 0) s[n][e] = 0;
        }
      }
    }
    copies_wait<1>();
    __syncthreads();  // v is here
    multiply_columns<T, Dim>(o, s, v_tile);
  }

  float factor[2];
  TRIAX_UNROLL
  for (int half = 0; half < 2; ++half) {
    float sum = state.sum[half];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    factor[half] = shape.dropout.keep_scale / sum;
    const int row = row0 + g + 8 * half;
    if (t == 0 && row < shape.seq) {
      a.lse[head * shape.rows() + static_cast<int64_t>(row) * shape.batch + sample] =
          state.max[half] * shape.scale + logf(sum);
    }
  }
  store_rows<T, Dim>(head_run(a.o, shape, sample, head), row0, shape, o, factor[0], factor[1]);
}

}  // namespace

template <class T>
void launch_attention_forward(const AttentionForwardArgs<T>& args, cudaStream_t stream) {
  with_padded_dim(args.shape.dim, [&](auto padded) {
    constexpr int Dim = decltype(padded)::value;
    constexpr size_t kBytes = 2 * kKeys * kPitch<Dim> * sizeof(T);  // 34 KiB at most: no permission needed
    const dim3 grid(grid_of(args.shape.seq, kAttentionRows), static_cast<unsigned>(args.shape.heads),
                    static_cast<unsigned>(args.shape.batch));
    TRIAX_LAUNCH((attention_forward_tile<T, Dim>), grid, kAttentionThreads, kBytes, stream, args);
  });
}

template void launch_attention_forward<bf16>(const AttentionForwardArgs<bf16>&, cudaStream_t);
template void launch_attention_forward<fp16>(const AttentionForwardArgs<fp16>&, cudaStream_t);

}  // namespace triax::kernels

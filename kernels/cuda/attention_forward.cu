// Flash attention forward on tensor cores: o = softmax(scale q k^T, causal) v and lse = log sum exp of each row, never
// an s x s matrix (arXiv 2307.08691, algorithm 1). A block takes 64 queries of one head, a warp 16 of them with q in
// registers; keys and values come 64 at a time, k of the next step while this one's softmax runs, v while q k^T does.
// Operations: 4 b a s^2 d, half of them skipped by causality. Bytes: q, o once; k and v once per 64 queries (from L2).
#include "kernels/cuda/attention_dropout.h"
#include "kernels/cuda/attention_softmax.h"
#include "kernels/cuda/attention_tile.h"

namespace triax::kernels {
namespace {

constexpr int kKeys = 64, kKeyTiles = kKeys / 8;

template <class T, int Dim>
__global__ void __launch_bounds__(kAttentionThreads, 2) attention_forward_tile(AttentionForwardArgs<T> a) {
  TRIAX_DYNAMIC_SHARED(memory);
  __shared__ AttentionDropout dropout;
  T* const k_tile = reinterpret_cast<T*>(memory);
  T* const v_tile = k_tile + kKeys * kPitch<Dim>;
  const AttentionShape& shape = a.shape;
  const int warp = threadIdx.x / kWarp;
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
    // The diagonal; keys beyond the sequence lie behind every query within it.
    if (step == tile) mask_future(s, row0, key0);
    float shrink[2];
    softmax_step(state, s, scale_log2, shrink);
    rescale(o, shrink);
    if (shape.dropout.active) {
      const uint32_t keep = keep_bits_query_rows<kKeyTiles>(dropout, shape.head_begin + head, row0, key0);
      drop_scores(s, keep);
    }
    copies_wait<1>();
    __syncthreads();  // v is here
    multiply_columns<T, Dim>(o, s, v_tile);
  }

  float factor[2];
  finish_softmax(state, shape, a.lse, head, sample, row0, factor);
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

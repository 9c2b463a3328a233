// Flash attention forward on Hopper (formula: attention_forward.cu; arXiv 2407.08608 for the overlap). A block takes
// 128 queries of one head. One thread has the copy engine bring q, then k and v 128 rows at a time into two stages
// each; two warpgroups multiply by wgmma, q k^T of the next step in flight while the softmax of this one's scores waits
// for it, and p v with p in registers. Operations and bytes as there; k and v once per 128 queries (from L2).
#include "kernels/cuda/attention_dropout.h"
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_softmax.h"
#include "kernels/cuda/resources.h"

namespace triax::kernels {
namespace {

constexpr int kKeys = 128, kKeyTiles = kKeys / 8, kStages = 2;

template <class T>
struct HopperForwardArgs {
  AttentionForwardArgs<T> tensors;
  CUtensorMap q, k, v;
};

/// full: a tile has come; empty: all warps have read it.
template <int Stages>
struct StageBarriers {
  uint64_t q, k_full[Stages], v_full[Stages], k_empty[Stages], v_empty[Stages];

  __device__ void init() {
    barrier_init(&q, 1);
    for (int i = 0; i < Stages; ++i) {
      barrier_init(&k_full[i], 1);
      barrier_init(&v_full[i], 1);
      barrier_init(&k_empty[i], kHopperWarps);
      barrier_init(&v_empty[i], kHopperWarps);
    }
    fence_async_proxy();
  }
};
using ForwardBarriers = StageBarriers<kStages>;

/// Tiles in shared memory, aligned.
template <int Dim>
struct ForwardTiles {
  static constexpr unsigned kQ = kTileBytes<Dim, kHopperRows>, kStage = kTileBytes<Dim, kKeys>;
  static constexpr unsigned kBytes = kQ + 2 * kStages * kStage;  // 160 KiB for 128
  __device__ static constexpr unsigned k(int stage) { return kQ + stage * kStage; }
  __device__ static constexpr unsigned v(int stage) { return kQ + (kStages + stage) * kStage; }
};

/// By one thread.
template <class T, int Dim>
__device__ __forceinline__ void feed_forward(const HopperForwardArgs<T>& a, unsigned char* tiles, ForwardBarriers& b,
                                             int tile, int head, int kv_head, int sample) {
  using Tiles = ForwardTiles<Dim>;
  barrier_arrive_expecting(&b.q, Tiles::kQ);
  copy_tile<Dim, kHopperRows>(tiles, a.q, head, sample, tile * kHopperRows, &b.q);
  for (int step = 0; step <= tile; ++step) {
    const int stage = step % kStages;
    const unsigned parity = 1 - step / kStages % 2;  // the first round finds the stages empty
    barrier_wait(&b.k_empty[stage], parity);
    barrier_arrive_expecting(&b.k_full[stage], Tiles::kStage);
    copy_tile<Dim, kKeys>(tiles + Tiles::k(stage), a.k, kv_head, sample, step * kKeys, &b.k_full[stage]);
    barrier_wait(&b.v_empty[stage], parity);
    barrier_arrive_expecting(&b.v_full[stage], Tiles::kStage);
    copy_tile<Dim, kKeys>(tiles + Tiles::v(stage), a.v, kv_head, sample, step * kKeys, &b.v_full[stage]);
  }
}

/// Masks, the softmax and dropout of one step's scores; p in s.
template <bool Drops>
__device__ __forceinline__ void forward_scores(float (&s)[kKeyTiles][4], OnlineSoftmax& state, float (&shrink)[2],
                                               const AttentionShape& shape, const AttentionDropout& dropout, int head,
                                               int row0, int key0, bool diagonal) {
  if (diagonal) mask_future(s, row0, key0);
  softmax_step(state, s, shape.scale * kLog2e, shrink);
  if constexpr (Drops) {
    drop_scores<0>(s, keep_bits_query_rows<8>(dropout, shape.head_begin + head, row0, key0));
    drop_scores<8>(s, keep_bits_query_rows<8>(dropout, shape.head_begin + head, row0, key0 + 64));
  }
}

/// By a warpgroup: its 64 rows of the block's.
template <class T, int Dim, bool Drops>
__device__ __forceinline__ void attend(const AttentionForwardArgs<T>& a, unsigned tiles, ForwardBarriers& b,
                                       const AttentionDropout& dropout, int tile, int head, int sample) {
  using Tiles = ForwardTiles<Dim>;
  const int group_row = static_cast<int>(threadIdx.x) / kGroupThreads * kGroupRows;
  const int row0 = tile * kHopperRows + static_cast<int>(threadIdx.x) / static_cast<int>(kWarp) * 16;  // of this warp
  OnlineSoftmax state;
  float s[kKeyTiles][4], o[Dim / 8][4], shrink[2];
  uint32_t p[kKeyTiles / 2][4];
  clear(o);

  barrier_wait(&b.q, 0);
  barrier_wait(&b.k_full[0], 0);
  products_fence();
  multiply_tiles<T, Dim, kKeys>(s, tiles, group_row, tiles + Tiles::k(0));
  products_commit();
  products_wait<0>();
  products_done(s);
  release(&b.k_empty[0]);
  forward_scores<Drops>(s, state, shrink, a.shape, dropout, head, row0, 0, tile == 0);
  pack_left<T>(p, s);
  for (int step = 0; step < tile; ++step) {
    const int stage = step % kStages, next = (step + 1) % kStages;
    barrier_wait(&b.k_full[next], (step + 1) / kStages % 2);
    products_fence();
    multiply_tiles<T, Dim, kKeys>(s, tiles, group_row, tiles + Tiles::k(next));
    products_commit();
    barrier_wait(&b.v_full[stage], step / kStages % 2);
    products_fence();
    multiply_packed<T, Dim, kKeys>(o, p, tiles + Tiles::v(stage));
    products_commit();
    products_wait<1>();  // s is here, o not yet
    products_done(s);
    release(&b.k_empty[next]);
    forward_scores<Drops>(s, state, shrink, a.shape, dropout, head, row0, (step + 1) * kKeys, step + 1 == tile);
    products_wait<0>();
    products_done(o);
    release(&b.v_empty[stage]);
    rescale(o, shrink);
    pack_left<T>(p, s);
  }
  barrier_wait(&b.v_full[tile % kStages], tile / kStages % 2);
  products_fence();
  multiply_packed<T, Dim, kKeys>(o, p, tiles + Tiles::v(tile % kStages));
  products_commit();
  products_wait<0>();
  products_done(o);

  float factor[2];
  finish_softmax(state, a.shape, a.lse, head, sample, row0, factor);
  store_rows<T, Dim>(head_run(a.o, a.shape, sample, head), row0, a.shape, o, factor[0], factor[1]);
}

template <class T, int Dim, bool Drops>
__global__ void __launch_bounds__(kHopperThreads, 1)
    attention_forward_hopper(const __grid_constant__ HopperForwardArgs<T> a) {
#if defined(TRIAX_HOPPER_CODE)
  TRIAX_DYNAMIC_SHARED(memory);
  __shared__ ForwardBarriers barriers;
  __shared__ AttentionDropout dropout;
  unsigned char* const tiles = aligned_tiles(memory);
  const AttentionShape& shape = a.tensors.shape;
  // The longest rows first.
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x), head = blockIdx.y, sample = blockIdx.z;
  if (threadIdx.x == 0) barriers.init();
  if constexpr (Drops) prepare_dropout(dropout, shape, sample);
  __syncthreads();
  if (threadIdx.x >= kHopperGroups * kGroupThreads) {
    give_registers_back<24>();
    if (threadIdx.x == kHopperGroups * kGroupThreads) {
      feed_forward<T, Dim>(a, tiles, barriers, tile, head, head / (shape.heads / shape.kv_heads), sample);
    }
  } else {
    take_registers<240>();
    attend<T, Dim, Drops>(a.tensors, shared_address(tiles), barriers, dropout, tile, head, sample);
  }
#endif
}

/// 1 where the kernels of this folder for Hopper have a body.
__global__ void hopper_probe(int* answer) {
#if defined(TRIAX_HOPPER_CODE)
  *answer = 1;
#else
  *answer = 0;
#endif
}

}  // namespace

bool hopper_kernels_answer(cudaStream_t stream) {
  CudaProvider memory;
  int answer = 0;
  void* const there = memory.allocate(sizeof answer);
  TRIAX_LAUNCH(hopper_probe, 1, 1, 0, stream, static_cast<int*>(there));
  TRIAX_CUDA(cudaMemcpyAsync(&answer, there, sizeof answer, cudaMemcpyDeviceToHost, stream));
  TRIAX_CUDA(cudaStreamSynchronize(stream));
  memory.deallocate(there, sizeof answer);
  return answer == 1;
}

template <class T>
void launch_hopper_forward(const AttentionForwardArgs<T>& args, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  with_padded_dim(shape.dim, [&](auto padded) {
    constexpr int Dim = decltype(padded)::value;
    const HopperForwardArgs<T> a{args, tile_map<T, Dim>(args.q, shape.heads, shape, kHopperRows),
                                 tile_map<T, Dim>(args.k, shape.kv_heads, shape, kKeys),
                                 tile_map<T, Dim>(args.v, shape.kv_heads, shape, kKeys)};
    const dim3 grid(grid_of(shape.seq, kHopperRows), static_cast<unsigned>(shape.heads),
                    static_cast<unsigned>(shape.batch));
    constexpr size_t kBytes = ForwardTiles<Dim>::kBytes + kSwizzleAlignment;
    launch_hopper(
        shape.dropout.active ? attention_forward_hopper<T, Dim, true> : attention_forward_hopper<T, Dim, false>, grid,
        kBytes, stream, a);
  });
}

template void launch_hopper_forward<bf16>(const AttentionForwardArgs<bf16>&, cudaStream_t);
template void launch_hopper_forward<fp16>(const AttentionForwardArgs<fp16>&, cudaStream_t);

}  // namespace triax::kernels

// Flash attention backward on Hopper: the two passes of attention_backward.cu (formulas there), by wgmma and the copy
// engine. A block takes 128 rows of (q, dout) or of (k, v), in shared memory for the whole pass; one thread has the
// copy engine bring the other pair 64 rows at a time into two stages. s and dp are made with both operands in shared
// memory, ds and mask p go from registers. Operations and order of sums as there.
#include "kernels/cuda/attention_dropout.h"
#include "kernels/cuda/attention_gradient.h"
#include "kernels/cuda/attention_hopper.h"

namespace triax::kernels {
namespace {

constexpr int kCols = 64, kStages = 2;
[[maybe_unused]] constexpr int kColTiles = kCols / 8;

template <class T>
struct HopperBackwardArgs {
  AttentionBackwardArgs<T> tensors;
  CUtensorMap left_scores, left_values, right_scores, right_values;
};

/// full: tiles have come; empty: all warps have read them.
template <int Stages>
struct StageBarriers {
  uint64_t left, full[Stages], empty[Stages];

  __device__ void init() {
    barrier_init(&left, 1);
    for (int i = 0; i < Stages; ++i) {
      barrier_init(&full[i], 1);
      barrier_init(&empty[i], kHopperWarps);
    }
    fence_async_proxy();
  }
};
using GradientBarriers = StageBarriers<kStages>;

/// Tiles in shared memory, aligned.
template <int Dim>
struct GradientTiles {
  static constexpr unsigned kLeft = kTileBytes<Dim, kHopperRows>, kRight = kTileBytes<Dim, kCols>;
  static constexpr unsigned kBytes = 2 * kLeft + 2 * kStages * kRight;  // 128 KiB for 128
  __device__ static constexpr unsigned scores(int stage) { return 2 * kLeft + 2 * stage * kRight; }
  __device__ static constexpr unsigned values(int stage) { return scores(stage) + kRight; }
};

/// By one thread. right_head: of the tensors on the right, for query head h.
template <class T, int Dim, bool KeyRows>
__device__ __forceinline__ void feed_gradients(const HopperBackwardArgs<T>& a, unsigned char* tiles,
                                               GradientBarriers& b, const GradientPass& pass, int left_head,
                                               int sample) {
  using Tiles = GradientTiles<Dim>;
  const AttentionShape& shape = a.tensors.shape;
  barrier_arrive_expecting(&b.left, 2 * Tiles::kLeft);
  copy_tile<Dim, kHopperRows>(tiles, a.left_scores, left_head, sample, pass.row0, &b.left);
  copy_tile<Dim, kHopperRows>(tiles + Tiles::kLeft, a.left_values, left_head, sample, pass.row0, &b.left);
  const int steps = pass.steps();
  for (int step = 0; step < steps; ++step) {
    const int stage = step % kStages, col0 = pass.col0<kCols>(step);
    const int head = KeyRows ? pass.head(step) : pass.head(step) / (shape.heads / shape.kv_heads);
    barrier_wait(&b.empty[stage], 1 - step / kStages % 2);  // the first round finds the stages empty
    barrier_arrive_expecting(&b.full[stage], 2 * Tiles::kRight);
    copy_tile<Dim, kCols>(tiles + Tiles::scores(stage), a.right_scores, head, sample, col0, &b.full[stage]);
    copy_tile<Dim, kCols>(tiles + Tiles::values(stage), a.right_values, head, sample, col0, &b.full[stage]);
  }
}

/// By a warpgroup: its 64 rows of the block's.
template <class T, int Dim, bool KeyRows, bool Drops>
__device__ __forceinline__ void gather_gradients(const AttentionBackwardArgs<T>& a, unsigned tiles, GradientBarriers& b,
                                                 const AttentionDropout& dropout, const GradientPass& pass,
                                                 int left_head, int sample) {
  using Tiles = GradientTiles<Dim>;
  const AttentionShape& shape = a.shape;
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const int group_row = static_cast<int>(threadIdx.x) / kGroupThreads * kGroupRows;
  const int row0 = pass.row0 + static_cast<int>(threadIdx.x) / static_cast<int>(kWarp) * 16;  // of this warp
  QueryStatistics of_row[2] = {};
  if constexpr (!KeyRows) {
    of_row[0] = query_statistics(shape, a.lse, a.delta, sample, pass.head0, row0 + g);
    of_row[1] = query_statistics(shape, a.lse, a.delta, sample, pass.head0, row0 + g + 8);
  }
  float from_scores[Dim / 8][4], from_values[KeyRows ? Dim / 8 : 1][4];
  clear(from_scores);
  clear(from_values);
  barrier_wait(&b.left, 0);
  const int steps = pass.steps();
  for (int step = 0; step < steps; ++step) {
    const int stage = step % kStages, head = pass.head(step), col0 = pass.col0<kCols>(step);
    const unsigned scores = tiles + Tiles::scores(stage), values = tiles + Tiles::values(stage);
    float s[kColTiles][4], dp[kColTiles][4];
    barrier_wait(&b.full[stage], step / kStages % 2);
    products_fence();
    multiply_tiles<T, Dim, kCols>(s, tiles, group_row, scores);
    multiply_tiles<T, Dim, kCols>(dp, tiles + Tiles::kLeft, group_row, values);
    products_commit();
    products_wait<0>();
    products_done(s);
    products_done(dp);
    uint32_t keep = 0xffffffffu;
    if constexpr (Drops) {
      const int global_head = shape.head_begin + head;
      keep = KeyRows ? keep_bits_key_rows<kColTiles>(dropout, global_head, row0, col0)
                     : keep_bits_query_rows<kColTiles>(dropout, global_head, row0, col0);
    }
    score_gradients<KeyRows>(s, dp, row0, col0, shape, keep, [&](int n, int e) {
      if constexpr (KeyRows) {
        // Loads of few columns at a time: those of all would spill registers.
        if (n % 2 == 0 && e == 0) asm volatile("" ::: "memory");
        return query_statistics(shape, a.lse, a.delta, sample, head, col0 + 8 * n + 2 * t + (e & 1));
      } else {
        return of_row[e / 2];
      }
    });
    uint32_t left[kColTiles / 2][4], left_values[KeyRows ? kColTiles / 2 : 1][4];
    pack_left<T>(left, dp);
    if constexpr (KeyRows) pack_left<T>(left_values, s);
    products_fence();
    multiply_packed<T, Dim, kCols>(from_scores, left, scores);
    if constexpr (KeyRows) multiply_packed<T, Dim, kCols>(from_values, left_values, values);
    products_commit();
    products_wait<0>();
    products_done(from_scores);
    if constexpr (KeyRows) products_done(from_values);
    release(&b.empty[stage]);
  }
  if constexpr (KeyRows) {
    store_rows<T, Dim>(head_run(a.dk, shape, sample, left_head), row0, shape, from_scores, shape.scale, shape.scale);
    store_rows<T, Dim>(head_run(a.dv, shape, sample, left_head), row0, shape, from_values, 1, 1);
  } else {
    store_rows<T, Dim>(head_run(a.dq, shape, sample, left_head), row0, shape, from_scores, shape.scale, shape.scale);
  }
}

template <class T, int Dim, bool KeyRows, bool Drops>
__global__ void __launch_bounds__(kHopperThreads, 1)
    attention_gradient_hopper(const __grid_constant__ HopperBackwardArgs<T> a) {
#if defined(TRIAX_HOPPER_CODE)
  TRIAX_DYNAMIC_SHARED(memory);
  __shared__ GradientBarriers barriers;
  __shared__ AttentionDropout dropout;
  unsigned char* const tiles = aligned_tiles(memory);
  const AttentionShape& shape = a.tensors.shape;
  // The longest walks first: early keys, late queries.
  const int tile = static_cast<int>(KeyRows ? blockIdx.x : gridDim.x - 1 - blockIdx.x), sample = blockIdx.z;
  const GradientPass pass = gradient_pass<KeyRows, kHopperRows, kCols>(shape, tile, blockIdx.y);
  if (threadIdx.x == 0) barriers.init();
  if constexpr (Drops) prepare_dropout(dropout, shape, sample);
  __syncthreads();
  if (threadIdx.x >= kHopperGroups * kGroupThreads) {
    give_registers_back<24>();
    if (threadIdx.x == kHopperGroups * kGroupThreads) {
      feed_gradients<T, Dim, KeyRows>(a, tiles, barriers, pass, blockIdx.y, sample);
    }
  } else {
    take_registers<240>();
    gather_gradients<T, Dim, KeyRows, Drops>(a.tensors, shared_address(tiles), barriers, dropout, pass, blockIdx.y,
                                             sample);
  }
#endif
}

template <class T, int Dim, bool KeyRows>
void launch_pass(const AttentionBackwardArgs<T>& args, cudaStream_t stream) {
  const AttentionShape& shape = args.shape;
  const int left_heads = KeyRows ? shape.kv_heads : shape.heads, right_heads = KeyRows ? shape.heads : shape.kv_heads;
  const auto left = [&](const HeadRows<const T>& t) { return tile_map<T, Dim>(t, left_heads, shape, kHopperRows); };
  const auto right = [&](const HeadRows<const T>& t) { return tile_map<T, Dim>(t, right_heads, shape, kCols); };
  const HopperBackwardArgs<T> a{args, left(KeyRows ? args.k : args.q), left(KeyRows ? args.v : args.dout),
                                right(KeyRows ? args.q : args.k), right(KeyRows ? args.dout : args.v)};
  const dim3 grid(grid_of(shape.seq, kHopperRows), static_cast<unsigned>(left_heads),
                  static_cast<unsigned>(shape.batch));
  constexpr size_t kBytes = GradientTiles<Dim>::kBytes + kSwizzleAlignment;
  launch_hopper(shape.dropout.active ? attention_gradient_hopper<T, Dim, KeyRows, true>
                                     : attention_gradient_hopper<T, Dim, KeyRows, false>,
                grid, kBytes, stream, a);
}

}  // namespace

template <class T>
void launch_hopper_backward(const AttentionBackwardArgs<T>& args, cudaStream_t stream) {
  with_padded_dim(args.shape.dim, [&](auto padded) {
    launch_pass<T, decltype(padded)::value, true>(args, stream);
    launch_pass<T, decltype(padded)::value, false>(args, stream);
  });
}

template void launch_hopper_backward<bf16>(const AttentionBackwardArgs<bf16>&, cudaStream_t);
template void launch_hopper_backward<fp16>(const AttentionBackwardArgs<fp16>&, cudaStream_t);

}  // namespace triax::kernels

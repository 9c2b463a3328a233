// What the two tensor-core backward passes of attention share: which rows a block takes, and the gradient of scores.
#pragma once

#include "kernels/cuda/attention_softmax.h"

namespace triax::kernels {

/// lse (as a power of 2) and delta of a query; beyond the sequence lse is infinite, so that p is 0.
struct QueryStatistics {
  float lse, delta;
};

__device__ __forceinline__ QueryStatistics query_statistics(const AttentionShape& shape, const float* lse,
                                                            const float* delta, int sample, int head, int query) {
  if (query >= shape.seq) return {INFINITY, 0};
  const int64_t at = head * shape.rows() + static_cast<int64_t>(query) * shape.batch + sample;
  return {lse[at] * kLog2e, delta[at]};
}

/// Turns s and dp of a warp into what is multiplied next: dp becomes ds, s becomes mask p.
template <bool KeyRows, int Tiles, class StatisticsOf>
__device__ __forceinline__ void score_gradients(float (&s)[Tiles][4], float (&dp)[Tiles][4], int row0, int col0,
                                                const AttentionShape& shape, uint32_t keep, const StatisticsOf& of) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  const float scale_log2 = shape.scale * kLog2e;
  TRIAX_UNROLL
  for (int n = 0; n < Tiles; ++n) {
    TRIAX_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int row = row0 + g + (e & 2 ? 8 : 0), col = col0 + 8 * n + 2 * t + (e & 1);
      const QueryStatistics query = of(n, e);
      const bool seen = KeyRows ? row <= col : col <= row;
      const float p = seen ? fast_exp2(s[n][e] * scale_log2 - query.lse) : 0.0f;
      const float mask = (keep >> (4 * n + e) & 1) != 0 ? shape.dropout.keep_scale : 0.0f;
      dp[n][e] = p * (mask * dp[n][e] - query.delta);
      s[n][e] = mask * p;
    }
  }
}

/// What one block works on: `Rows` rows of q and dout, or of k and v, and all visible rows of the other pair, `Cols` at
/// a time for each of `group` query heads.
struct GradientPass {
  int row0, first_col, col_tiles;
  int head0, group;

  __device__ int steps() const { return col_tiles * group; }
  __device__ int head(int step) const { return head0 + step / col_tiles; }
  template <int Cols>
  __device__ int col0(int step) const {
    return first_col + step % col_tiles * Cols;
  }
};

template <bool KeyRows, int Rows, int Cols>
__device__ __forceinline__ GradientPass gradient_pass(const AttentionShape& shape, int tile, int head) {
  const int row0 = tile * Rows;
  if constexpr (KeyRows) {
    const int per_kv = shape.heads / shape.kv_heads;
    return {row0, row0, (shape.seq - row0 + Cols - 1) / Cols, head * per_kv, per_kv};
  } else {
    const int end = row0 + Rows < shape.seq ? row0 + Rows : shape.seq;
    return {row0, 0, (end + Cols - 1) / Cols, head, 1};
  }
}

}  // namespace triax::kernels

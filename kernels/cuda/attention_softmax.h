// The online softmax of the tensor-core attention kernels: scores as mma and wgmma leave them, 8 Tiles keys across.
#pragma once

#include "kernels/cuda/attention_problem.h"
#include "kernels/cuda/ptx.h"

namespace triax::kernels {

inline constexpr float kLog2e = 1.4426950408889634f;

/// The running maximum and sum of rows g and g + 8 of a warp. `sum` is this lane's share of the row's.
struct OnlineSoftmax {
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
};

/// s becomes exp(scale (s - max)); `shrink` is what sums made so far are to be multiplied by.
template <int Tiles>
__device__ __forceinline__ void softmax_step(OnlineSoftmax& state, float (&s)[Tiles][4], float scale_log2,
                                             float (&shrink)[2]) {
  TRIAX_UNROLL
  for (int half = 0; half < 2; ++half) {
    float max = state.max[half];
    TRIAX_UNROLL
    for (int n = 0; n < Tiles; ++n) max = fmaxf(max, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
    shrink[half] = fast_exp2((state.max[half] - max) * scale_log2);
    const float shift = max * scale_log2;
    state.max[half] = max;
    float sum = 0;
    TRIAX_UNROLL
    for (int n = 0; n < Tiles; ++n) {
      TRIAX_UNROLL
      for (int e = 2 * half; e < 2 * half + 2; ++e) {
        s[n][e] = fast_exp2(s[n][e] * scale_log2 - shift);
        sum += s[n][e];
      }
    }
    state.sum[half] = state.sum[half] * shrink[half] + sum;
  }
}

template <int Tiles>
__device__ __forceinline__ void rescale(float (&o)[Tiles][4], const float (&shrink)[2]) {
  TRIAX_UNROLL
  for (int n = 0; n < Tiles; ++n) {
    TRIAX_UNROLL
    for (int e = 0; e < 4; ++e) o[n][e] *= shrink[e / 2];
  }
}

/// Scores of keys behind their query become -infinity. s[0][0] is that of (row0 + g, key0 + 2 t).
template <int Tiles>
__device__ __forceinline__ void mask_future(float (&s)[Tiles][4], int row0, int key0) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  TRIAX_UNROLL
  for (int n = 0; n < Tiles; ++n) {
    TRIAX_UNROLL
    for (int e = 0; e < 4; ++e) {
      if (key0 + 8 * n + 2 * t + (e & 1) > row0 + g + (e & 2 ? 8 : 0)) s[n][e] = -INFINITY;
    }
  }
}

/// The end of a warp's 16 rows: stores lse, and gives what o is to be multiplied by.
__device__ __forceinline__ void finish_softmax(const OnlineSoftmax& state, const AttentionShape& shape, float* lse,
                                               int head, int sample, int row0, float (&factor)[2]) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  TRIAX_UNROLL
  for (int half = 0; half < 2; ++half) {
    float sum = state.sum[half];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    factor[half] = shape.dropout.keep_scale / sum;
    const int row = row0 + g + 8 * half;
    if (t == 0 && row < shape.seq) {
      lse[head * shape.rows() + static_cast<int64_t>(row) * shape.batch + sample] =
          state.max[half] * shape.scale + logf(sum);
    }
  }
}

}  // namespace triax::kernels

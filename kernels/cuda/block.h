// Sums and maxima over the lanes of a warp and the threads of a block, in an order that depends on the block's size
// alone.
#pragma once

#include "kernels/cuda/platform.h"

namespace triax::kernels {

template <class V>
__device__ __forceinline__ V warp_sum(V v) {
  TRIAX_UNROLL
  for (int distance = 16; distance > 0; distance /= 2) v += __shfl_xor_sync(kAllLanes, v, distance);
  return v;
}

__device__ __forceinline__ float warp_max(float v) {
  TRIAX_UNROLL
  for (int distance = 16; distance > 0; distance /= 2) v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, distance));
  return v;
}

/// Room for one value of each warp, of up to 32 warps.
template <class V>
struct BlockScratch {
  V of_warp[kWarp];
};

/// Sum over the block, the same bits in every thread. blockDim.x is a multiple of 32; the scratch may be used again
/// after the next barrier.
template <class V>
__device__ __forceinline__ V block_sum(V v, BlockScratch<V>& scratch) {
  v = warp_sum(v);
  if (threadIdx.x % kWarp == 0) scratch.of_warp[threadIdx.x / kWarp] = v;
  __syncthreads();
  V sum = scratch.of_warp[0];
  for (unsigned w = 1; w < blockDim.x / kWarp; ++w) sum += scratch.of_warp[w];
  return sum;
}

__device__ __forceinline__ float block_max(float v, BlockScratch<float>& scratch) {
  v = warp_max(v);
  if (threadIdx.x % kWarp == 0) scratch.of_warp[threadIdx.x / kWarp] = v;
  __syncthreads();
  float max = scratch.of_warp[0];
  for (unsigned w = 1; w < blockDim.x / kWarp; ++w) max = fmaxf(max, scratch.of_warp[w]);
  return max;
}

}  // namespace triax::kernels

// How a row of a norm lies in the registers of a block.
#pragma once

#include "kernels/cuda/elements.h"

namespace triax::kernels {

/// Runs of 16 bytes that a thread holds of a long row.
inline constexpr int kNormRuns = 4;
/// More threads would leave each too few registers. Rows of 20480 and 12288 elements of 16 bits, half as many of fp32.
inline constexpr int kNormForwardThreads = 640;
inline constexpr int kNormBackwardThreads = 384;
/// Rows up to this many runs take one run per thread.
inline constexpr int64_t kNormShortRuns = 128;

struct NormShape {
  int threads = 0;
  int runs = 0;  ///< 1 or kNormRuns; 0: too long for registers
};

/// cols is a multiple of `width`, the elements of a run.
inline NormShape norm_shape(int64_t cols, int64_t width, int max_threads) {
  const int64_t runs = cols / width;
  const int64_t per_thread = runs <= kNormShortRuns ? 1 : kNormRuns;
  const int64_t threads = ((runs + per_thread - 1) / per_thread + kWarp - 1) / kWarp * kWarp;
  if (threads > max_threads) return {};
  return {static_cast<int>(threads), static_cast<int>(per_thread)};
}

}  // namespace triax::kernels

// How a row of a norm lies in the registers of a block.
#pragma once

#include "kernels/cuda/elements.h"

namespace triax::kernels {

/// Runs of 16 bytes that a thread holds of a long row.
inline constexpr int kNormRuns = 4;
/// More threads would leave each too few registers. Rows of 16384 and 12288 elements of 16 bits, half as many of fp32.
inline constexpr int kNormForwardThreads = 512;
inline constexpr int kNormBackwardThreads = 384;
/// Rows up to this many runs take one run per thread.
inline constexpr int kNormShortRuns = 128;

/// A block of either kernel walks rows begin .. end one after the other, so that what all rows share is read once in
/// it. The number of blocks is a function of the rows alone: enough to fill a GPU, few enough that what each reads and
/// writes once stays below 5 % of the rows.
inline int64_t norm_forward_blocks(int64_t rows) { return std::min(rows, std::max<int64_t>(384, rows / 32)); }
inline int64_t norm_backward_blocks(int64_t rows) { return std::min(rows, std::clamp<int64_t>(rows / 80, 192, 512)); }

/// Statistics of rows that a block keeps in shared memory at a time, so that they are read and written in whole
/// sectors.
inline constexpr int kNormStaged = 64;

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

// Sums over the rows of a matrix whose elements a body computes (and may write elsewhere), without atomics: blocks of
// rows whose number depends on the shape alone give partial sums in fp32, which add_partials adds in order.
#pragma once

#include "kernels/cuda/elements.h"

namespace triax::kernels {

inline constexpr int kColumnWarps = kBlock / static_cast<int>(kWarp);

/// Blocks of rows for a matrix of that many rows: enough to fill a GPU, not so many that the partial sums weigh.
inline int64_t row_splits(int64_t rows) { return std::clamp<int64_t>((rows + 31) / 32, 1, 128); }

/// Rows whose data a block keeps at a time.
inline constexpr int kStagedRows = 64;

/// What a body of column_sums needs of each row beside its elements: nothing.
struct NoRowData {};

/// body.at<N>(per_block, of_row, r, c, v) gives the N elements v of row r, columns c .. to be summed; per_block is what
/// body.prepare<V>(c) gave for the first of the thread's columns, of_row (a Body::Row) what body.row(r) gave: read once
/// in a block. A block takes 32 * V columns and rows begin .. end, a warp every 8th row of them; partial: [splits,
/// cols].
template <int V, class Body>
__global__ void __launch_bounds__(kBlock, 4) column_sums(int64_t rows, int64_t cols, Body body, float* partial) {
  using Row = typename Body::Row;
  constexpr bool kStaged = !std::is_empty_v<Row>;
  // Element i of a lane's run; spaced so that neither way of going through it meets a bank twice.
  __shared__ float of_warp[kColumnWarps][V][kWarp + kWarp / V];
  __shared__ Row staged[kStaged ? kStagedRows : 1];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t c = (static_cast<int64_t>(blockIdx.x) * kWarp + lane) * V;
  const int64_t begin = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
  const auto prepared = body.template prepare<V>(c, cols);
  float sum[V];
  TRIAX_UNROLL
  for (int i = 0; i < V; ++i) sum[i] = 0;
  const int64_t chunk = kStaged ? kStagedRows : end - begin;
  for (int64_t at = begin; at < end; at += chunk) {
    const int64_t to = at + chunk < end ? at + chunk : end;
    if constexpr (kStaged) {
      __syncthreads();
      if (threadIdx.x < to - at) staged[threadIdx.x] = body.row(at + threadIdx.x);
      __syncthreads();
    }
    for (int64_t r = at + warp; r < to; r += kColumnWarps) {
      const Row of_row = staged[kStaged ? r - at : 0];
      if (c + V <= cols) {
        float v[V];
        body.template at<V>(prepared, of_row, r, c, v);
        TRIAX_UNROLL
        for (int i = 0; i < V; ++i) sum[i] += v[i];
      } else {
        TRIAX_UNROLL
        for (int i = 0; i < V; ++i) {
          if (c + i < cols) {
            float v[1];
            body.template at<1>(prepared, of_row, r, c + i, v);
            sum[i] += v[0];
          }
        }
      }
    }
  }
  if (partial == nullptr) return;
  TRIAX_UNROLL
  for (int i = 0; i < V; ++i) of_warp[warp][i][lane] = sum[i];
  __syncthreads();
  for (int j = threadIdx.x; j < static_cast<int>(kWarp) * V; j += kBlock) {
    float total = 0;
    for (int w = 0; w < kColumnWarps; ++w) total += of_warp[w][j % V][j / V];
    const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp * V + j;
    if (column < cols) global_write(partial + static_cast<int64_t>(blockIdx.y) * cols + column, total);
  }
}

/// partial: fp32 [row_splits(rows), cols], or null when only what the body writes is wanted.
template <int V, class Body>
void launch_column_sums(int64_t rows, int64_t cols, const Body& body, float* partial, cudaStream_t stream) {
  const dim3 grid(grid_of(cols, static_cast<int64_t>(kWarp) * V), static_cast<unsigned>(row_splits(rows)));
  TRIAX_LAUNCH((column_sums<V, Body>), grid, kBlock, 0, stream, rows, cols, body, partial);
}

}  // namespace triax::kernels

// Tensor maps: what the copy engine of Hopper (TMA) is told of a tensor in memory.
#pragma once

#include <cuda.h>

#include "kernels/cuda/attention_problem.h"

namespace triax::kernels {

/// A box of `rows` rows t and `cols` columns of one head of one sample, `cols` of them 128 or 64 bytes wide, which the
/// copy lays down in the swizzle of that width (matrix_descriptor, ptx_hopper.h).
struct HeadBox {
  int rows, cols;
};

/// The map of [T, heads * dim] as the 4-dimensional tensor (dim, heads, batch, seq) of 16-bit elements. What lies
/// outside a head or the sequence reads as 0. `rows` begins at a multiple of 16 bytes, and so does each of its rows.
/// ApiError when the driver refuses.
CUtensorMap head_map(DType dtype, const void* data, int64_t row_stride, int heads, const AttentionShape& shape,
                     HeadBox box);

}  // namespace triax::kernels

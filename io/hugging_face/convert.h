// Element types and order of whole tensors in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace triax::io {

/// to = from (fp64, fp32, bf16, fp16), rounded to nearest even where `to` is narrower; the same type: the same bits.
/// `from` may be unaligned.
void convert_elements(std::span<const std::byte> from, DType from_type, std::span<std::byte> to, DType to_type);

/// to [cols, rows] = transpose of from [rows, cols], elements of `size` bytes (2, 4 or 8).
void transpose_elements(std::span<const std::byte> from, int64_t rows, int64_t cols, size_t size,
                        std::span<std::byte> to);

}  // namespace triax::io

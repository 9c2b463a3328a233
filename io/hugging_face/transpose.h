// The order of a tensor's elements in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace triax::io {

/// to [cols, rows] = transpose of from [rows, cols], elements of `size` bytes (2, 4 or 8).
void transpose_elements(std::span<const std::byte> from, int64_t rows, int64_t cols, size_t size,
                        std::span<std::byte> to);

}  // namespace triax::io

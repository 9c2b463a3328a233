#include "io/hugging_face/transpose.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace triax::io {
namespace {

template <size_t N>
void transpose(const std::byte* from, int64_t rows, int64_t cols, std::byte* to) {
  constexpr int64_t kBlock = 64;
  for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
    for (int64_t c0 = 0; c0 < cols; c0 += kBlock) {
      for (int64_t c = c0; c < std::min(c0 + kBlock, cols); ++c) {
        for (int64_t r = r0; r < std::min(r0 + kBlock, rows); ++r) {
          std::memcpy(to + static_cast<size_t>(c * rows + r) * N, from + static_cast<size_t>(r * cols + c) * N, N);
        }
      }
    }
  }
}

}  // namespace

void transpose_elements(std::span<const std::byte> from, int64_t rows, int64_t cols, size_t size,
                        std::span<std::byte> to) {
  ensure(from.size() == to.size() && from.size() == static_cast<size_t>(rows * cols) * size,
         "transpose_elements: lengths differ");
  if (size == 2) return transpose<2>(from.data(), rows, cols, to.data());
  if (size == 4) return transpose<4>(from.data(), rows, cols, to.data());
  ensure(size == 8, "transpose_elements: elements of 2, 4 or 8 bytes");
  transpose<8>(from.data(), rows, cols, to.data());
}

}  // namespace triax::io

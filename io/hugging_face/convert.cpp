#include "io/hugging_face/convert.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace triax::io {
namespace {

template <class Use>
void with_type(DType dtype, Use&& use) {
  switch (dtype) {
    case DType::Float64:
      return use(double{});
    case DType::Float32:
      return use(float{});
    case DType::BFloat16:
      return use(bf16{});
    case DType::Float16:
      return use(fp16{});
    default:
      ensure(false, "convert_elements: not a type of weights");
  }
}

/// One rounding: from fp64 to a 16-bit type through fp32 rounded to odd, which cannot round twice.
float to_odd_float(double value) {
  auto rounded = static_cast<float>(value);
  if (static_cast<double>(rounded) == value || !(value == value)) return rounded;
  uint32_t bits;
  std::memcpy(&bits, &rounded, 4);
  const bool away = (static_cast<double>(rounded) > value) == (value > 0);
  if (away) --bits;  // towards zero first; infinity becomes the largest number
  bits |= 1;
  std::memcpy(&rounded, &bits, 4);
  return rounded;
}

template <class From, class To>
To converted(From value) {
  if constexpr (std::is_same_v<To, double>) {
    if constexpr (std::is_same_v<From, double> || std::is_same_v<From, float>)
      return static_cast<double>(value);
    else
      return static_cast<double>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, float>) {
    return static_cast<float>(value);
  } else if constexpr (std::is_same_v<From, double>) {
    return To(to_odd_float(value));
  } else {
    return To(static_cast<float>(value));
  }
}

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

void convert_elements(std::span<const std::byte> from, DType from_type, std::span<std::byte> to, DType to_type) {
  const size_t numel = from.size() / size_of(from_type);
  ensure(to.size() == numel * size_of(to_type), "convert_elements: lengths differ");
  if (numel == 0) return;
  if (from_type == to_type) {
    std::memcpy(to.data(), from.data(), from.size());
    return;
  }
  with_type(from_type, [&]<class From>(From) {
    with_type(to_type, [&]<class To>(To) {
      for (size_t i = 0; i < numel; ++i) {
        From value;
        std::memcpy(&value, from.data() + i * sizeof(From), sizeof(From));
        const To result = converted<From, To>(value);
        std::memcpy(to.data() + i * sizeof(To), &result, sizeof(To));
      }
    });
  });
}

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

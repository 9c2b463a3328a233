#include "io/checkpoint/convert.h"

#include <cstring>

#include "base/error.h"

namespace triax::io {
namespace {

/// fp64 to 16 bits through fp32 rounded to odd: so the second rounding rounds as if it were the only one.
float wide_for_narrow(double value) {
  auto rounded = static_cast<float>(value);
  if (static_cast<double>(rounded) == value || value != value) return rounded;
  uint32_t bits;
  std::memcpy(&bits, &rounded, 4);
  const bool away = (static_cast<double>(rounded) > value) == (value > 0);
  if (away) --bits;  // towards zero first; infinity becomes the largest number
  bits |= 1;
  std::memcpy(&rounded, &bits, 4);
  return rounded;
}
template <class T>
float wide_for_narrow(T x) {
  return static_cast<float>(x);
}
double wide(double x) { return x; }
float wide(float x) { return x; }
float wide(bf16 x) { return static_cast<float>(x); }
float wide(fp16 x) { return static_cast<float>(x); }

template <class From, class To>
void convert_values(Tensor from, Tensor to) {
  const From* x = from.as<From>();
  To* y = to.as<To>();
  for (int64_t i = 0; i < from.numel(); ++i) {
    if constexpr (sizeof(To) >= 4) {
      y[i] = static_cast<To>(wide(x[i]));
    } else {
      y[i] = To(wide_for_narrow(x[i]));
    }
  }
}

template <class From>
void convert_from(Tensor from, Tensor to) {
  switch (to.dtype()) {
    case DType::Float64:
      return convert_values<From, double>(from, to);
    case DType::Float32:
      return convert_values<From, float>(from, to);
    case DType::BFloat16:
      return convert_values<From, bf16>(from, to);
    case DType::Float16:
      return convert_values<From, fp16>(from, to);
    default:
      ensure(false, "convert: no conversion to " + std::string(name_of(to.dtype())));
  }
}

}  // namespace

void convert(Tensor from, Tensor to) {
  ensure(from.numel() == to.numel() && from.contiguous() && to.contiguous(), "convert: lengths differ");
  if (from.dtype() == to.dtype()) {
    std::memcpy(to.data(), from.data(), static_cast<size_t>(from.bytes()));
    return;
  }
  switch (from.dtype()) {
    case DType::Float64:
      return convert_from<double>(from, to);
    case DType::Float32:
      return convert_from<float>(from, to);
    case DType::BFloat16:
      return convert_from<bf16>(from, to);
    case DType::Float16:
      return convert_from<fp16>(from, to);
    default:
      ensure(false, "convert: no conversion from " + std::string(name_of(from.dtype())));
  }
}

}  // namespace triax::io

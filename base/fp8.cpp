#include "base/fp8.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace triax {
namespace {

struct Format {
  int mantissa, bias;
  float largest;
};

Format format_of(DType type) {
  ensure(type == DType::Float8E4M3 || type == DType::Float8E5M2, "fp8: another type");
  return type == DType::Float8E4M3 ? Format{3, 7, 448.0f} : Format{2, 15, 57344.0f};
}

}  // namespace

float fp8_max(DType type) { return format_of(type).largest; }

uint8_t to_fp8(float value, DType type) {
  const Format f = format_of(type);
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  if (!std::isfinite(value)) return sign | 0x7f;
  const float magnitude = std::min(std::abs(value), f.largest);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - f.bias);
  // In units of the last place, rounded to even; a carry runs into the exponent's bits by itself.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, f.mantissa - exponent)));
  return static_cast<uint8_t>(sign | (((exponent + f.bias - 1) << f.mantissa) + units));
}

float from_fp8(uint8_t bits, DType type) {
  const Format f = format_of(type);
  const int code = bits & 0x7f, exponent = code >> f.mantissa, fraction = code & ((1 << f.mantissa) - 1);
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  if (type == DType::Float8E4M3 ? code == 0x7f : exponent == 31 && fraction != 0) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  if (type == DType::Float8E5M2 && exponent == 31) return sign * std::numeric_limits<float>::infinity();
  const int units = exponent == 0 ? fraction : fraction + (1 << f.mantissa);
  return sign * std::ldexp(static_cast<float>(units), std::max(exponent, 1) - f.bias - f.mantissa);
}

}  // namespace triax

#include "base/dtype.h"

#include "base/error.h"

namespace triax {

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
    case DType::Int64: return 8;
    case DType::Float32:
    case DType::Int32: return 4;
    case DType::BFloat16:
    case DType::Float16: return 2;
    default: return 1;
  }
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::Float64: return "fp64";
    case DType::Float32: return "fp32";
    case DType::BFloat16: return "bf16";
    case DType::Float16: return "fp16";
    case DType::Float8E4M3: return "fp8_e4m3";
    case DType::Float8E5M2: return "fp8_e5m2";
    case DType::Int8: return "int8";
    case DType::UInt8: return "uint8";
    case DType::Int32: return "int32";
    case DType::Int64: return "int64";
  }
  ensure(false, "unknown dtype");
  return "";
}

bool is_floating(DType dtype) { return dtype <= DType::Float8E5M2; }

// The compiler's _Float16 is not usable by every host compiler, so the conversion is spelled out (RNE, subnormals kept).
fp16::fp16(float value) {
  uint32_t u;
  std::memcpy(&u, &value, 4);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) {  // infinity or NaN
    bits = static_cast<uint16_t>(sign | 0x7c00u | (magnitude > 0x7f800000u ? 0x200u : 0u));
    return;
  }
  if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more
    bits = static_cast<uint16_t>(sign | 0x7c00u);
    return;
  }
  if (magnitude < 0x38800000u) {  // subnormal half: let the FPU round at the right bit
    float f;
    std::memcpy(&f, &magnitude, 4);
    f += 0.5f;
    uint32_t r;
    std::memcpy(&r, &f, 4);
    bits = static_cast<uint16_t>(sign | (r - 0x3f000000u));
    return;
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  bits = static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

fp16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  uint32_t u;
  if (exponent == 0x1f) {
    u = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent != 0) {
    u = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else {
    const float f = static_cast<float>(mantissa) * 0x1p-24f;
    std::memcpy(&u, &f, 4);
    u |= sign;
  }
  float value;
  std::memcpy(&value, &u, 4);
  return value;
}

}  // namespace triax

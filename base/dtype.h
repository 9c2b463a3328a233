// Element types known at run time, and conversions of single values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace triax {

enum class DType : uint8_t { Float64, Float32, BFloat16, Float16, Float8E4M3, Float8E5M2, Int8, UInt8, Int32, Int64 };

/// Bytes of one element.
size_t size_of(DType dtype);
/// "fp64", "fp32", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "int8", "uint8", "int32", "int64".
std::string_view name_of(DType dtype);
bool is_floating(DType dtype);

/// bfloat16 storage: the upper half of an IEEE fp32, converted with round to nearest even.
struct bf16 {
  uint16_t bits;
  bf16() = default;
  explicit bf16(float value) {
    uint32_t u;
    std::memcpy(&u, &value, 4);
    // A NaN must stay one: rounding could carry its mantissa into infinity.
    bits = (u & 0x7fffffffu) > 0x7f800000u ? static_cast<uint16_t>((u >> 16) | 0x40)
                                           : static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const {
    const uint32_t u = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &u, 4);
    return value;
  }
};

/// IEEE half storage.
struct fp16 {
  uint16_t bits;
  fp16() = default;
  explicit fp16(float value);
  explicit operator float() const;
};

template <class T>
struct DTypeOf;
template <> struct DTypeOf<double> { static constexpr DType value = DType::Float64; };
template <> struct DTypeOf<float> { static constexpr DType value = DType::Float32; };
template <> struct DTypeOf<bf16> { static constexpr DType value = DType::BFloat16; };
template <> struct DTypeOf<fp16> { static constexpr DType value = DType::Float16; };
template <> struct DTypeOf<int8_t> { static constexpr DType value = DType::Int8; };
template <> struct DTypeOf<uint8_t> { static constexpr DType value = DType::UInt8; };
template <> struct DTypeOf<int32_t> { static constexpr DType value = DType::Int32; };
template <> struct DTypeOf<int64_t> { static constexpr DType value = DType::Int64; };

}  // namespace triax

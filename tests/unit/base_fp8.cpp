// The 8-bit floating types: every code, every midpoint between neighbours, the ends.
#include <gtest/gtest.h>

#include <cmath>

#include "base/fp8.h"

namespace triax {
namespace {

TEST(Fp8, EveryCodeComesBackAndMidpointsGoToEven) {
  for (const DType type : {DType::Float8E4M3, DType::Float8E5M2}) {
    for (int code = 0; code < 256; ++code) {
      const float value = from_fp8(static_cast<uint8_t>(code), type);
      if (!std::isfinite(value)) continue;
      EXPECT_EQ(to_fp8(value, type), code) << value;
      const float next = from_fp8(static_cast<uint8_t>(code + 1), type);
      if ((code & 0x7f) == 0x7f || !std::isfinite(next)) continue;
      const float middle = (value + next) / 2;
      EXPECT_EQ(to_fp8(middle, type), code % 2 == 0 ? code : code + 1) << middle;
      EXPECT_EQ(to_fp8(std::nextafter(middle, value), type), code);
      EXPECT_EQ(to_fp8(std::nextafter(middle, next), type), code + 1);
    }
  }
}

TEST(Fp8, KnownValuesAndEnds) {
  EXPECT_EQ(from_fp8(0x01, DType::Float8E4M3), 0x1p-9f);
  EXPECT_EQ(from_fp8(0x7e, DType::Float8E4M3), 448.0f);
  EXPECT_EQ(from_fp8(0x38, DType::Float8E4M3), 1.0f);
  EXPECT_EQ(from_fp8(0x01, DType::Float8E5M2), 0x1p-16f);
  EXPECT_EQ(from_fp8(0x7b, DType::Float8E5M2), 57344.0f);
  EXPECT_EQ(from_fp8(0xbc, DType::Float8E5M2), -1.0f);
  for (const DType type : {DType::Float8E4M3, DType::Float8E5M2}) {
    EXPECT_EQ(from_fp8(to_fp8(1e9f, type), type), fp8_max(type));
    EXPECT_EQ(from_fp8(to_fp8(-1e9f, type), type), -fp8_max(type));
    EXPECT_TRUE(std::isnan(from_fp8(to_fp8(INFINITY, type), type)));
    EXPECT_TRUE(std::isnan(from_fp8(to_fp8(NAN, type), type)));
  }
}

}  // namespace
}  // namespace triax

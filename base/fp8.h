// The two 8-bit floating types (arXiv 2209.05433): E4M3, 4 exponent and 3 mantissa bits, largest 448, no infinity;
// E5M2, 5 and 2 bits, largest 57344.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace triax {

/// 448 or 57344.
float fp8_max(DType type);
/// To the nearest, ties to even; beyond the largest value that value; NaN and infinity give NaN, so that an overflow
/// upstream is seen downstream.
uint8_t to_fp8(float value, DType type);
float from_fp8(uint8_t bits, DType type);

}  // namespace triax

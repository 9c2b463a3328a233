// Units of bytes.
#pragma once

namespace triax {

inline constexpr double kGiB = 0x1p30;

}  // namespace triax

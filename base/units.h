// Units of bytes.
#pragma once

namespace triax {

inline constexpr double kMiB = 0x1p20;
inline constexpr double kGiB = 0x1p30;

}  // namespace triax

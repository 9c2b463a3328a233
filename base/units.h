// Units of bytes and of rates.
#pragma once

namespace triax {

inline constexpr double kMiB = 0x1p20;
inline constexpr double kGiB = 0x1p30;
inline constexpr double kGiga = 1e9;
inline constexpr double kTera = 1e12;

}  // namespace triax

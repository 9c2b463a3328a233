// Copies between ranks of one host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace triax::comm {

/// to == from does nothing; else the ranges must not overlap. In pieces, so that the C library takes its way for copies
/// that fit a cache, which fetches from another core's cache three times faster than its way for large ones (1 MiB from
/// one rank to another, Zen 4, glibc 2.36: 46 us, whole 144 us).
inline void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  constexpr int64_t kPiece = int64_t{128} << 10;
  if (to == from) return;
  for (int64_t at = 0; at < bytes; at += kPiece) {
    std::memcpy(to + at, from + at, static_cast<size_t>(std::min(kPiece, bytes - at)));
  }
}

}  // namespace triax::comm

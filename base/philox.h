// Counter-based random numbers (Philox4x32-10, Salmon et al., SC11): a value depends on its key and counter only, so
// weights, dropout masks and data order are the same in every layout.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace triax {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

/// Ten rounds of Philox4x32: four independent uniform 32-bit words per (counter, key).
inline PhiloxCounter philox4x32(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

/// Uniform in (0, 1): (word + 0.5) / 2^32.
inline double uniform_from(uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }

/// FNV-1a, 64 bits: the stream of a tensor from its global name.
uint64_t stream_of(std::string_view name);

/// Element `index` of the standard normal stream (seed, stream): Box-Muller on Philox words, in double.
double normal_at(uint64_t seed, uint64_t stream, uint64_t index);

}  // namespace triax

#include "base/philox.h"

#include <cmath>
#include <numbers>

namespace triax {

uint64_t stream_of(std::string_view name) {
  uint64_t h = 14695981039346656037ull;
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return h;
}

double normal_at(uint64_t seed, uint64_t stream, uint64_t index) {
  const uint64_t block = index / 4;  // four words give two pairs, each pair two normals
  const PhiloxKey key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const PhiloxCounter words = philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                          static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                                         key);
  const size_t pair = (index / 2) % 2 * 2;
  const double radius = std::sqrt(-2.0 * std::log(uniform_from(words[pair])));
  const double angle = 2.0 * std::numbers::pi * uniform_from(words[pair + 1]);
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace triax

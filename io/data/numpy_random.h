// numpy.random.RandomState(seed).shuffle, equal to the bit: MT19937, masked rejection.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace triax::io {

class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed) : engine_(seed) {}

  /// Uniform in [0, max]; a max above 2^32 - 1 draws two words, the high one first.
  uint64_t interval(uint64_t max) {
    if (max == 0) return 0;
    uint64_t mask = max;
    for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
    for (;;) {
      const uint64_t value = (max <= 0xffffffffu ? word() : (word() << 32) | word()) & mask;
      if (value <= max) return value;
    }
  }

  /// In place, one stream over successive calls.
  template <class T>
  void shuffle(std::span<T> values) {
    for (size_t i = values.size(); i-- > 1;) std::swap(values[i], values[interval(i)]);
  }

 private:
  uint64_t word() { return engine_() & 0xffffffffu; }
  std::mt19937 engine_;
};

}  // namespace triax::io

// Which random word decides an element of a dropout mask: plain functions that every device backend shares, so that
// all of them draw the same bits. One Philox4x32-10 call serves the four elements with the same element / 4.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define TRIAX_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define TRIAX_HOST_DEVICE inline __attribute__((always_inline))
#endif

namespace triax::kernels {

/// The 64-bit Philox key of one site in one step.
struct DropoutKey {
  uint32_t word[2];
};

/// Four random words, or a counter.
struct PhiloxWords {
  uint32_t word[4];
};

/// Ten rounds of Philox4x32 (Salmon et al., SC11), the same as triax::philox4x32.
TRIAX_HOST_DEVICE PhiloxWords dropout_philox(PhiloxWords c, DropoutKey k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c.word[0];
    const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c.word[2];
    const uint32_t c1 = c.word[1];
    const uint32_t c3 = c.word[3];
    c.word[0] = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k.word[0];
    c.word[1] = static_cast<uint32_t>(p1);
    c.word[2] = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k.word[1];
    c.word[3] = static_cast<uint32_t>(p0);
    k.word[0] += 0x9E3779B9u;
    k.word[1] += 0xBB67AE85u;
  }
  return c;
}

/// (seed, step, site) are 160 bits and the key has 64, so one Philox call under the seed condenses them.
TRIAX_HOST_DEVICE DropoutKey dropout_key(uint64_t seed, int64_t step, uint32_t site) {
  const uint64_t s = static_cast<uint64_t>(step);
  const PhiloxWords counter = {{static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32), site, 0x64726f70u}};
  const DropoutKey seed_key = {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}};
  const PhiloxWords w = dropout_philox(counter, seed_key);
  const DropoutKey key = {{w.word[0], w.word[1]}};
  return key;
}

/// Counter of elements 4 * block .. 4 * block + 3. Distinct for sample < 2^48, head < 2^16, position < 2^32. Hidden
/// dropout has head 0 and the hidden index as element; attention has the global head, the query's position, and the
/// key's position as element.
TRIAX_HOST_DEVICE PhiloxWords dropout_counter(int64_t sample, int64_t position, int64_t head, int64_t block) {
  const uint64_t s = static_cast<uint64_t>(sample);
  const PhiloxWords counter = {{static_cast<uint32_t>(block), static_cast<uint32_t>(position),
                                static_cast<uint32_t>(head) | static_cast<uint32_t>(s >> 32) << 16,
                                static_cast<uint32_t>(s)}};
  return counter;
}

/// An element is kept when its word is at least this: (word + 0.5) / 2^32 >= p.
TRIAX_HOST_DEVICE uint32_t dropout_threshold(double p) {
  const double t = p * 4294967296.0 - 0.5;
  if (t <= 0) return 0;
  if (t > 4294967295.0) return 0xffffffffu;
  const uint32_t floor = static_cast<uint32_t>(t);
  return floor < t ? floor + 1 : floor;
}

/// The rule in one place, element by element; what the fast paths must equal.
TRIAX_HOST_DEVICE bool dropout_keeps(DropoutKey key, uint32_t threshold, int64_t sample, int64_t position, int64_t head,
                                     int64_t element) {
  const PhiloxWords w = dropout_philox(dropout_counter(sample, position, head, element / 4), key);
  return w.word[element % 4] >= threshold;
}

}  // namespace triax::kernels

// Random words of many elements at once: a 64-bit lane holds one 32-bit word of the Philox state, so that the
// instruction set's 32 x 32 -> 64 multiplication serves; what stands in the upper halves is ignored by it.
#pragma once

#include "kernels/cpu/isa/runs.h"
#include "kernels/dropout_key.h"

namespace triax::kernels::TRIAX_ISA {

using Wide = Lanes<double>::U;
inline constexpr int kWide = kLanes<double>;

/// Lower half times constant, 64 bits.
TRIAX_INLINE Wide mul_wide(Wide a, uint32_t constant) {
  const Wide b = Wide{} + constant;
#if defined(__AVX512F__)
  return reinterpret_cast<Wide>(_mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Wide>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
  return reinterpret_cast<Wide>(_mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  return (a & 0xffffffffu) * b;
#endif
}

alignas(64) inline constexpr uint64_t kCounting[8] = {0, 1, 2, 3, 4, 5, 6, 7};

/// Philox state of kWide blocks.
struct WideState {
  Wide c0, c1, c2, c3;
  TRIAX_INLINE WideState(const PhiloxWords& base, int64_t block) {
    memcpy(&c0, kCounting, sizeof(c0));
    c0 += static_cast<uint64_t>(block);
    c1 = Wide{} + base.word[1];
    c2 = Wide{} + base.word[2];
    c3 = Wide{} + base.word[3];
  }
  TRIAX_INLINE void round(Wide key0, Wide key1) {
    const Wide p0 = mul_wide(c0, 0xD2511F53u);
    const Wide p1 = mul_wide(c2, 0xCD9E8D57u);
    c0 = (p1 >> 32) ^ c1 ^ key0;
    c2 = (p0 >> 32) ^ c3 ^ key1;
    c1 = p1;
    c3 = p0;
  }
  /// words[4 * i + w] = word w of block i.
  TRIAX_INLINE void write(uint32_t* words) const {
    const Wide low = (c0 & 0xffffffffu) | (c1 << 32);
    const Wide high = (c2 & 0xffffffffu) | (c3 << 32);
    const Wide front = interleave_low(low, high);
    const Wide back = interleave_high(low, high);
    memcpy(words, &front, sizeof(front));  // little-endian, as every supported machine
    memcpy(words + 2 * kWide, &back, sizeof(back));
  }
};

/// Elements made at a time: two states, so that the latency of one hides behind the other.
inline constexpr int64_t kWordsAtOnce = 8 * kWide;

/// words[e - 4 * block] for elements from 4 * block on; writes n rounded up to kWordsAtOnce words.
TRIAX_INLINE void philox_words(DropoutKey key, const PhiloxWords& base, int64_t block, int64_t n, uint32_t* words) {
  for (int64_t done = 0; done < n; done += kWordsAtOnce) {
    WideState a(base, block + done / 4);
    WideState b(base, block + done / 4 + kWide);
    DropoutKey k = key;
    for (int round = 0; round < 10; ++round) {
      const Wide key0 = Wide{} + k.word[0];
      const Wide key1 = Wide{} + k.word[1];
      a.round(key0, key1);
      b.round(key0, key1);
      k.word[0] += 0x9E3779B9u;
      k.word[1] += 0xBB67AE85u;
    }
    a.write(words + done);
    b.write(words + done + 4 * kWide);
  }
}

/// scale where word >= threshold, else 0, for a whole vector of elements.
TRIAX_INLINE Vec<float> keep_factor(const uint32_t* words, uint32_t threshold, float scale) {
  Lanes<float>::U w;
  memcpy(&w, words, sizeof(w));
  return w >= threshold ? splat(scale) : splat(0.0f);
}
TRIAX_INLINE Vec<double> keep_factor(const uint32_t* words, uint32_t threshold, double scale) {
  Vec<double> v;
  for (int i = 0; i < kLanes<double>; ++i) v[i] = words[i] >= threshold ? scale : 0.0;
  return v;
}

/// The same for what a step of for_lanes covers.
template <class C, class N>
TRIAX_INLINE Vec<C> keep_factor(const uint32_t* words, uint32_t threshold, C scale, N) {
  return keep_factor(words, threshold, scale);
}
template <class C>
TRIAX_INLINE Pair<C> keep_factor(const uint32_t* words, uint32_t threshold, C scale, Twice) {
  return {keep_factor(words, threshold, scale), keep_factor(words + kLanes<C>, threshold, scale)};
}

}  // namespace triax::kernels::TRIAX_ISA

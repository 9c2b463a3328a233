// Random words of many elements at once: a 64-bit lane holds one 32-bit word of the Philox state, so that the
// instruction set's 32 x 32 -> 64 multiplication serves; what stands in the upper halves is ignored by it.
#pragma once

#include "kernels/cpu/isa/simd.h"
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

/// words[4 * i + w] = word w of block `block + i`, i = 0 .. kWide - 1, for the row whose counter is `base`.
TRIAX_INLINE void philox_group(DropoutKey key, PhiloxWords base, int64_t block, uint32_t* words) {
  Wide c0;
  for (int i = 0; i < kWide; ++i) c0[i] = static_cast<uint64_t>(block + i);
  Wide c1 = Wide{} + base.word[1];
  Wide c2 = Wide{} + base.word[2];
  Wide c3 = Wide{} + base.word[3];
  for (int round = 0; round < 10; ++round) {
    const Wide p0 = mul_wide(c0, 0xD2511F53u);
    const Wide p1 = mul_wide(c2, 0xCD9E8D57u);
    c0 = (p1 >> 32) ^ c1 ^ key.word[0];
    c2 = (p0 >> 32) ^ c3 ^ key.word[1];
    c1 = p1;
    c3 = p0;
    key.word[0] += 0x9E3779B9u;
    key.word[1] += 0xBB67AE85u;
  }
  const Wide low = (c0 & 0xffffffffu) | (c1 << 32);
  const Wide high = (c2 & 0xffffffffu) | (c3 << 32);
  uint64_t out[2 * kWide];
  for (int i = 0; i < kWide; ++i) {
    out[2 * i] = low[i];
    out[2 * i + 1] = high[i];
  }
  memcpy(words, out, sizeof(out));  // little-endian, as every supported machine
}

/// words[e - 4 * block] for elements from 4 * block on; writes n rounded up to 4 * kWide words.
TRIAX_INLINE void philox_words(DropoutKey key, PhiloxWords base, int64_t block, int64_t n, uint32_t* words) {
  for (int64_t done = 0; done < n; done += 4 * kWide) philox_group(key, base, block + done / 4, words + done);
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

}  // namespace triax::kernels::TRIAX_ISA

#include "kernels/cpu/compression_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/dtype.h"
#include "base/philox.h"

// TRIAX_SIMD_CLONES comes from CMake: the attribute that builds a function for several instruction sets, or nothing.

namespace triax::kernels {
namespace {

#define TRIAX_ALWAYS [[gnu::always_inline]] inline

constexpr int kSumLanes = 16;
constexpr float kLeastScale = 1e-36F;  // below, 1 / scale could overflow: the block counts as zeros

template <class C>
using Bits = std::conditional_t<sizeof(C) == 8, uint64_t, uint32_t>;

template <class C, class F>
TRIAX_ALWAYS C sum_of(int64_t n, F&& f) {
  C lane[kSumLanes] = {};
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int l = 0; l < kSumLanes; ++l) lane[l] += f(i + l);
  }
  for (int l = 0; i < n; ++i, ++l) lane[l] += f(i);
  C sum = 0;
  for (const C part : lane) sum += part;
  return sum;
}

/// By bits: a NaN is larger than all, whatever the comparison instructions make of it.
template <class C>
TRIAX_ALWAYS C largest_magnitude(const C* a, int64_t n) {
  constexpr auto kMask = static_cast<Bits<C>>(~Bits<C>{0}) >> 1;
  Bits<C> lane[kSumLanes] = {};
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int l = 0; l < kSumLanes; ++l) {
      const Bits<C> b = std::bit_cast<Bits<C>>(a[i + l]) & kMask;
      lane[l] = lane[l] > b ? lane[l] : b;
    }
  }
  for (int l = 0; i < n; ++i, ++l) lane[l] = std::max(lane[l], std::bit_cast<Bits<C>>(a[i]) & kMask);
  Bits<C> most = 0;
  for (const Bits<C> b : lane) most = std::max(most, b);
  return std::bit_cast<C>(most);
}

/// Round to nearest even, |x| < 2^22 (fp64: 2^51).
template <class C>
TRIAX_ALWAYS C round_even(C x) {
  constexpr C kMagic = sizeof(C) == 8 ? static_cast<C>(0x1.8p52) : static_cast<C>(0x1.8p23);
  return (x + kMagic) - kMagic;
}

/// A NaN becomes the upper bound (the scale tells it).
template <class C>
TRIAX_ALWAYS C clamp_code(C q, C bound) {
  q = q < bound ? q : bound;
  return q > -bound ? q : -bound;
}

/// Uniforms in [0, 1) of n elements whose global indices follow each other from `first` on.
void draw_uniforms(const DrawKey& key, uint64_t stream, uint64_t first, int64_t n, float* u) {
  const PhiloxKey philox_key{static_cast<uint32_t>(key.seed ^ stream),
                             static_cast<uint32_t>(key.seed >> 32 ^ stream >> 32) ^ 0x51534744U};
  for (int64_t i = 0; i < n;) {
    const uint64_t at = first + static_cast<uint64_t>(i);
    const PhiloxCounter words =
        philox4x32({static_cast<uint32_t>(at >> 2), static_cast<uint32_t>(at >> 34), static_cast<uint32_t>(key.step),
                    static_cast<uint32_t>(key.step >> 32) ^ key.sender << 8},
                   philox_key);
    for (uint64_t w = at & 3; w < 4 && i < n; ++w, ++i) u[i] = static_cast<float>(words[w] >> 8) * 0x1p-24F;
  }
}

/// What one block's code and its scale stand for, in the one way that sender and receivers share.
template <class C>
TRIAX_ALWAYS C decoded(int8_t code, float scale) {
  return static_cast<C>(code) * static_cast<C>(scale);
}
template <class C>
TRIAX_ALWAYS C decoded_bf16(uint16_t bits) {
  return static_cast<C>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}
TRIAX_ALWAYS uint16_t bf16_bits(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
  return static_cast<uint16_t>((u & 0x7fffffffU) > 0x7f800000U ? (u >> 16) | 0x40U : rounded);
}

template <class C>
TRIAX_ALWAYS float int8_block(const C* a, int64_t n, int8_t* code) {
  const auto scale = static_cast<float>(largest_magnitude(a, n) / C{127});
  const C inverse = scale < kLeastScale ? C{0} : C{1} / static_cast<C>(scale);
  for (int64_t i = 0; i < n; ++i) {
    code[i] = static_cast<int8_t>(static_cast<int32_t>(round_even(clamp_code(a[i] * inverse, C{127}))));
  }
  return scale < kLeastScale ? 0.0F : scale;
}

template <class C>
TRIAX_ALWAYS float qsgd_block(const C* a, int64_t n, int levels, const float* u, int8_t* code) {
  const C squares = sum_of<C>(n, [&](int64_t i) { return a[i] * a[i]; });
  const double exact = std::sqrt(static_cast<double>(squares)) / levels;
  // Up, so that |a| / scale cannot exceed the levels by rounding.
  const float scale = std::nextafter(static_cast<float>(exact), std::numeric_limits<float>::infinity());
  const C divisor = scale < kLeastScale ? std::numeric_limits<C>::infinity() : static_cast<C>(scale);
  const C bound = static_cast<C>(levels);
  for (int64_t i = 0; i < n; ++i) {
    const C magnitude = a[i] < 0 ? -a[i] : a[i];
    const auto q = static_cast<int32_t>(clamp_code(magnitude / divisor + static_cast<C>(u[i]), bound));
    code[i] = static_cast<int8_t>(a[i] < 0 ? -q : q);
  }
  return scale < kLeastScale ? 0.0F : scale;
}

template <class C>
TRIAX_ALWAYS float sign_block(C* a, int64_t n, uint8_t* code, bool residual) {
  const C sum = sum_of<C>(n, [&](int64_t i) { return a[i] < 0 ? -a[i] : a[i]; });
  const auto scale = static_cast<float>(sum / static_cast<C>(n));
  for (int64_t byte = 0; byte * 8 < n; ++byte) {
    uint8_t bits = 0;
    const int64_t end = std::min<int64_t>(n - byte * 8, 8);
    for (int64_t i = 0; i < end; ++i) bits |= static_cast<uint8_t>((a[byte * 8 + i] >= 0 ? 1U : 0U) << i);
    code[byte] = bits;
  }
  if (residual) {
    for (int64_t i = 0; i < n; ++i) a[i] -= a[i] >= 0 ? static_cast<C>(scale) : -static_cast<C>(scale);
  }
  return scale;
}

constexpr int64_t kRun = 512;  // elements taken at a time by codes that need scratch

template <class C>
TRIAX_ALWAYS void bf16_run(const C* x, C* residual, int64_t n, uint8_t* code) {
  uint16_t bits[kRun];
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t m = std::min(kRun, n - begin);
    if (residual == nullptr) {
      for (int64_t i = 0; i < m; ++i) bits[i] = bf16_bits(static_cast<float>(x[begin + i]));
    } else {
      for (int64_t i = 0; i < m; ++i) {
        const C a = x[begin + i] + residual[begin + i];
        bits[i] = bf16_bits(static_cast<float>(a));
        residual[begin + i] = a - decoded_bf16<C>(bits[i]);
      }
    }
    std::memcpy(code + 2 * begin, bits, static_cast<size_t>(2 * m));
  }
}

template <class C>
TRIAX_ALWAYS void encode_any(const EncodeSegment& e) {
  const C* x = static_cast<const C*>(e.x);
  C* residual = static_cast<C*>(e.residual);
  if (e.codec == Codec::BFloat16) return bf16_run(x, residual, e.segment.count, e.packed);
  C scratch[kLongestBlock];
  float uniforms[kLongestBlock];
  uint8_t* scales = e.packed;
  uint8_t* code = e.packed + 4 * blocks_of(e.segment);
  for_blocks(e.segment, [&](int64_t begin, int64_t n) {
    C* a = residual == nullptr ? scratch : residual + begin;
    if (residual == nullptr) {
      for (int64_t i = 0; i < n; ++i) a[i] = x[begin + i];
    } else {
      for (int64_t i = 0; i < n; ++i) a[i] += x[begin + i];
    }
    float scale = 0;
    auto* bytes = reinterpret_cast<int8_t*>(code);
    if (e.codec == Codec::Sign) {
      scale = sign_block(a, n, code, residual != nullptr);
      code += (n + 7) / 8;
    } else {
      if (e.codec == Codec::Int8) {
        scale = int8_block(a, n, bytes);
      } else {
        const int64_t place = e.segment.phase + begin;
        const int64_t row = place / e.segment.row_length;
        const int64_t global = e.segment.global_begin + row * e.segment.global_row + place - row * e.segment.row_length;
        draw_uniforms(e.draw, e.segment.stream, static_cast<uint64_t>(global), n, uniforms);
        scale = qsgd_block(a, n, e.levels, uniforms, bytes);
      }
      if (residual != nullptr) {
        for (int64_t i = 0; i < n; ++i) a[i] -= decoded<C>(bytes[i], scale);
      }
      code += n;
    }
    std::memcpy(scales, &scale, 4);
    scales += 4;
  });
}

template <class C, bool kAdd>
TRIAX_ALWAYS void put(C* y, int64_t i, C value) {
  y[i] = kAdd ? y[i] + value : value;
}

template <class C, bool kAdd>
TRIAX_ALWAYS void decode_any(const DecodeSegment& d) {
  C* y = static_cast<C*>(d.y);
  if (d.codec == Codec::BFloat16) {
    for (int64_t i = 0; i < d.segment.count; ++i) {
      uint16_t bits;
      std::memcpy(&bits, d.packed + 2 * i, 2);
      put<C, kAdd>(y, i, decoded_bf16<C>(bits));
    }
    return;
  }
  const uint8_t* scales = d.packed;
  const uint8_t* code = d.packed + 4 * blocks_of(d.segment);
  for_blocks(d.segment, [&](int64_t begin, int64_t n) {
    float scale;
    std::memcpy(&scale, scales, 4);
    scales += 4;
    if (d.codec == Codec::Sign) {
      const C positive = static_cast<C>(scale);
      for (int64_t i = 0; i < n; ++i) {
        put<C, kAdd>(y, begin + i, (code[i / 8] >> (i % 8) & 1) != 0 ? positive : -positive);
      }
      code += (n + 7) / 8;
    } else {
      const auto* bytes = reinterpret_cast<const int8_t*>(code);
      for (int64_t i = 0; i < n; ++i) put<C, kAdd>(y, begin + i, decoded<C>(bytes[i], scale));
      code += n;
    }
  });
}

/// A magnitude in the order of the search. All NaNs are one: which bits a sum gives one is the device's own.
template <class C>
TRIAX_ALWAYS Bits<C> ordered_bits(C v) {
  constexpr auto kMask = static_cast<Bits<C>>(~Bits<C>{0}) >> 1;
  const auto bits = std::bit_cast<Bits<C>>(v) & kMask;
  return bits > std::bit_cast<Bits<C>>(std::numeric_limits<C>::infinity()) ? kMask : bits;
}

/// Radix selection on the magnitude's bits, most significant digit first: the bits of the k-th largest, and how many of
/// its equals belong to the k.
template <class B>
struct Threshold {
  B bits = 0;
  int64_t equals = 0;
};
template <class C>
TRIAX_ALWAYS Threshold<Bits<C>> kth_largest(const C* a, int64_t n, int64_t k) {
  using B = Bits<C>;
  constexpr int kDigit = 11;
  B prefix = 0, known = 0;
  int64_t left = k;
  for (int shift = static_cast<int>(sizeof(B)) * 8 - 1; shift > 0;) {
    const int width = std::min(kDigit, shift);
    shift -= width;
    int64_t histogram[1 << kDigit] = {};
    const B digit_mask = (B{1} << width) - 1;
    for (int64_t i = 0; i < n; ++i) {
      const B b = ordered_bits(a[i]);
      if ((b & known) == prefix) ++histogram[b >> shift & digit_mask];
    }
    B digit = digit_mask;
    while (histogram[digit] < left) left -= histogram[digit--];
    prefix |= digit << shift;
    known |= digit_mask << shift;
  }
  return {prefix, left};
}

template <class C>
TRIAX_ALWAYS void select_any(const C* a, C* clear, int64_t n, int64_t k, int64_t base, C* value, int32_t* index) {
  const auto threshold = kth_largest(a, n, k);
  int64_t equals = threshold.equals;
  int64_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto b = ordered_bits(a[i]);
    if (b < threshold.bits || (b == threshold.bits && equals == 0)) continue;
    if (b == threshold.bits) --equals;
    value[found] = a[i];
    index[found++] = static_cast<int32_t>(base + i);
    if (clear != nullptr) clear[i] = 0;
  }
}

template <class C>
TRIAX_ALWAYS void frozen_any(const FrozenAdamArgs& args, C* w, const C* m, const C* v, int64_t n) {
  const C keep = static_cast<C>(1 - args.learning_rate * args.weight_decay);
  const C step = static_cast<C>(args.learning_rate * args.beta1_correction);
  const C root = static_cast<C>(args.inv_sqrt_correction2);
  const C eps = static_cast<C>(args.eps);
  for (int64_t i = 0; i < n; ++i) {
    const C next = w[i] * keep - step * m[i] / (std::sqrt(v[i]) * root + eps);
    w[i] = v[i] != 0 ? next : w[i];
  }
}

}  // namespace

TRIAX_SIMD_CLONES
void encode_segment(bool wide, const EncodeSegment& args) { wide ? encode_any<double>(args) : encode_any<float>(args); }

TRIAX_SIMD_CLONES
void decode_segment(bool wide, const DecodeSegment& args) {
  if (args.mode == Decode::Add) {
    wide ? decode_any<double, true>(args) : decode_any<float, true>(args);
  } else {
    wide ? decode_any<double, false>(args) : decode_any<float, false>(args);
  }
}

TRIAX_SIMD_CLONES
void add_elements(bool wide, const void* x, const void* residual, void* a, int64_t n) {
  const auto add = [n](const auto* from, const auto* with, auto* to) {
    for (int64_t i = 0; i < n; ++i) to[i] = with[i] != 0 ? from[i] + with[i] : from[i];  // -0 + 0 is not -0
  };
  if (wide) {
    add(static_cast<const double*>(x), static_cast<const double*>(residual), static_cast<double*>(a));
  } else {
    add(static_cast<const float*>(x), static_cast<const float*>(residual), static_cast<float*>(a));
  }
}

TRIAX_SIMD_CLONES
void select_largest(bool wide, const void* a, void* clear, int64_t n, int64_t k, int64_t base, void* value,
                    int32_t* index) {
  if (wide) {
    select_any(static_cast<const double*>(a), static_cast<double*>(clear), n, k, base, static_cast<double*>(value),
               index);
  } else {
    select_any(static_cast<const float*>(a), static_cast<float*>(clear), n, k, base, static_cast<float*>(value), index);
  }
}

TRIAX_SIMD_CLONES
double dot(bool wide, const void* x, const void* y, int64_t n) {
  const auto sum = [n](const auto* a, const auto* b) {
    return sum_of<double>(n, [&](int64_t i) { return static_cast<double>(a[i]) * static_cast<double>(b[i]); });
  };
  return wide ? sum(static_cast<const double*>(x), static_cast<const double*>(y))
              : sum(static_cast<const float*>(x), static_cast<const float*>(y));
}

TRIAX_SIMD_CLONES
void add_scaled(bool wide, double factor, const void* x, void* y, int64_t n) {
  const auto add = [n](auto f, const auto* a, auto* b) {
    for (int64_t i = 0; i < n; ++i) b[i] += f * a[i];
  };
  if (wide) {
    add(factor, static_cast<const double*>(x), static_cast<double*>(y));
  } else {
    add(static_cast<float>(factor), static_cast<const float*>(x), static_cast<float*>(y));
  }
}

TRIAX_SIMD_CLONES
void blend(bool wide, double beta, const void* x, double factor, void* y, int64_t n) {
  const auto mix = [n](auto b, const auto* from, auto f, auto* to) {
    for (int64_t i = 0; i < n; ++i) to[i] = b * from[i] + f * to[i];
  };
  if (wide) {
    mix(beta, static_cast<const double*>(x), factor, static_cast<double*>(y));
  } else {
    mix(static_cast<float>(beta), static_cast<const float*>(x), static_cast<float>(factor), static_cast<float*>(y));
  }
}

TRIAX_SIMD_CLONES
void frozen_adam_run(bool wide, const FrozenAdamArgs& args, void* w, const void* m, const void* v, int64_t n) {
  if (wide) {
    frozen_any(args, static_cast<double*>(w), static_cast<const double*>(m), static_cast<const double*>(v), n);
  } else {
    frozen_any(args, static_cast<float*>(w), static_cast<const float*>(m), static_cast<const float*>(v), n);
  }
}

}  // namespace triax::kernels

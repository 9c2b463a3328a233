// What tells a sequence of operations with all their arguments from every other one.
#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/device.h"

namespace triax::kernels {

/// 128 bits over all fields of all arguments, addresses among them, by two chains of splitmix64's finalizer: two
/// sequences that differ have the same bits with a probability of 2^-128. A struct that gets a field more does not
/// compile here until the field is added.
class Fingerprint {
 public:
  auto operator<=>(const Fingerprint&) const = default;
  uint64_t low() const { return low_; }

  template <class... T>
  void add_all(const T&... values) {
    (add(values), ...);
  }
  template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void add(T value) { word(static_cast<uint64_t>(value)); }
  void add(double value) { word(std::bit_cast<uint64_t>(value)); }
  void add(const void* address) { word(reinterpret_cast<uintptr_t>(address)); }
  void add(const Tensor& t) {
    add(t.data());
    word(static_cast<uint64_t>(t.dtype()) << 8 | static_cast<uint64_t>(t.rank()));
    for (int i = 0; i < t.rank(); ++i) add(t.dim(i));
    add(t.row_stride());
  }
  void add(const Fp8Operand& x) {
    const auto& [type, scale, amax, scaling, margin] = x;
    add_all(type, scale, amax, scaling, margin);
  }
  void add(const Gemm& x) {
    const auto& [a, b, c, transpose_a, transpose_b, accumulate, bias, fp8_a, fp8_b] = x;
    add_all(a, b, c, transpose_a, transpose_b, accumulate, bias, fp8_a, fp8_b);
  }
  void add(const TokenIndex& x) {
    const auto& [sample, position] = x;
    add_all(sample, position);
  }
  void add(const Dropout& x) {
    const auto& [p, seed, site, step] = x;
    add_all(p, seed, site, static_cast<const void*>(step));
  }
  void add(const Attention& x) {
    const auto& [batch, seq_length, heads, kv_heads, head_dim, head_begin, scale, dropout, index] = x;
    add_all(batch, seq_length, heads, kv_heads, head_dim, head_begin, scale, dropout, index);
  }

 private:
  static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }
  void word(uint64_t w) {
    low_ = mixed((low_ ^ w) + 0x9e3779b97f4a7c15);
    high_ = mixed((high_ ^ std::rotl(w, 32)) + 0xd1342543de82ef95);
  }

  uint64_t low_ = 0, high_ = 0;
};

struct FingerprintHash {
  size_t operator()(const Fingerprint& f) const { return f.low(); }
};

}  // namespace triax::kernels

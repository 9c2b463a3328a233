#include "comm/reduce_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

// TRIAX_SIMD_CLONES comes from CMake: the compiler's attribute that builds a function for several instruction sets and
// picks one at run time, or nothing where there is none.

namespace triax::comm {
namespace {

/// Elements taken at a time: accumulators of 8 KiB at most stay in the L1 cache.
constexpr int64_t kBlock = 1024;

template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, bf16> || std::is_same_v<T, fp16>, float, T>;

template <class A, class T>
[[gnu::always_inline]] inline A widen(T x) {
  return static_cast<A>(x);
}

template <class T, class A>
[[gnu::always_inline]] inline T narrow(A x) {
  return T(x);
}

// IEEE half by selects alone, so that the loops become vector code (base/dtype's conversions are calls).

template <>
[[gnu::always_inline]] inline float widen<float, fp16>(fp16 x) {
  const uint32_t magnitude = (x.bits & 0x7fffu) << 13;
  // As a float the exponent is 112 too small; the product is exact, subnormals included.
  const auto finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const uint32_t special = magnitude | 0x7f800000u;  // infinity or NaN
  const uint32_t sign = (x.bits & 0x8000u) << 16;
  return std::bit_cast<float>(sign | ((x.bits & 0x7c00u) == 0x7c00u ? special : finite));
}

/// Round to nearest even.
template <>
[[gnu::always_inline]] inline fp16 narrow<fp16, float>(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
  // Adding 0.5, whose last bit weighs 2^-24 as a subnormal half's, rounds it.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t half = magnitude < 0x38800000u ? subnormal : (magnitude < 0x47800000u ? normal : special);
  fp16 result;
  result.bits = static_cast<uint16_t>((bits >> 16 & 0x8000u) | half);
  return result;
}

template <ReduceOp op, class A>
[[gnu::always_inline]] inline A combine(A a, A b) {
  if constexpr (op == ReduceOp::Sum) {
    // Unsigned, so that integers wrap around as MPI's do.
    if constexpr (std::is_integral_v<A>) {
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  } else if constexpr (op == ReduceOp::Max) {
    return (a > b || a != a) ? a : b;
  } else {
    return (a < b || a != a) ? a : b;
  }
}

template <class T, ReduceOp op>
[[gnu::always_inline]] inline void reduce_typed(std::span<const std::byte* const> sources,
                                                std::span<std::byte* const> destinations, int64_t count) {
  using A = Accumulator<T>;
  A sum[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const T* first = reinterpret_cast<const T*>(sources[0]) + begin;
    if (sources.size() == 1) {
      for (int64_t i = 0; i < n; ++i) sum[i] = widen<A>(first[i]);
    } else {
      const T* second = reinterpret_cast<const T*>(sources[1]) + begin;
      for (int64_t i = 0; i < n; ++i) sum[i] = combine<op>(widen<A>(first[i]), widen<A>(second[i]));
    }
    for (size_t s = 2; s < sources.size(); ++s) {
      const T* next = reinterpret_cast<const T*>(sources[s]) + begin;
      for (int64_t i = 0; i < n; ++i) sum[i] = combine<op>(sum[i], widen<A>(next[i]));
    }
    for (std::byte* destination : destinations) {
      T* to = reinterpret_cast<T*>(destination) + begin;
      if constexpr (std::is_same_v<T, A>) {
        std::memcpy(to, sum, static_cast<size_t>(n) * sizeof(T));
      } else {
        for (int64_t i = 0; i < n; ++i) to[i] = narrow<T>(sum[i]);
      }
    }
  }
}

template <class T>
[[gnu::always_inline]] inline void reduce_op(ReduceOp op, std::span<const std::byte* const> sources,
                                             std::span<std::byte* const> destinations, int64_t count) {
  switch (op) {
    case ReduceOp::Sum:
      return reduce_typed<T, ReduceOp::Sum>(sources, destinations, count);
    case ReduceOp::Max:
      return reduce_typed<T, ReduceOp::Max>(sources, destinations, count);
    case ReduceOp::Min:
      return reduce_typed<T, ReduceOp::Min>(sources, destinations, count);
  }
}

TRIAX_SIMD_CLONES
void reduce_any(DType dtype, ReduceOp op, std::span<const std::byte* const> sources,
                std::span<std::byte* const> destinations, int64_t count) {
  switch (dtype) {
    case DType::Float64:
      return reduce_op<double>(op, sources, destinations, count);
    case DType::Float32:
      return reduce_op<float>(op, sources, destinations, count);
    case DType::BFloat16:
      return reduce_op<bf16>(op, sources, destinations, count);
    case DType::Float16:
      return reduce_op<fp16>(op, sources, destinations, count);
    case DType::Int32:
      return reduce_op<int32_t>(op, sources, destinations, count);
    case DType::Int64:
      return reduce_op<int64_t>(op, sources, destinations, count);
    default:
      ensure(false, "reduce_buffers: no reductions of fp8, int8 and uint8");
  }
}

}  // namespace

void reduce_buffers(DType dtype, ReduceOp op, std::span<const std::byte* const> sources,
                    std::span<std::byte* const> destinations, int64_t count) {
  ensure(!sources.empty(), "reduce_buffers: no source");
  reduce_any(dtype, op, sources, destinations, count);
}

}  // namespace triax::comm

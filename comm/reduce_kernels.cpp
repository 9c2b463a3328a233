#include "comm/reduce_kernels.h"

#include <algorithm>
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
      for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<A>(first[i]);
    } else {
      const T* second = reinterpret_cast<const T*>(sources[1]) + begin;
      for (int64_t i = 0; i < n; ++i) sum[i] = combine<op>(static_cast<A>(first[i]), static_cast<A>(second[i]));
    }
    for (size_t s = 2; s < sources.size(); ++s) {
      const T* next = reinterpret_cast<const T*>(sources[s]) + begin;
      for (int64_t i = 0; i < n; ++i) sum[i] = combine<op>(sum[i], static_cast<A>(next[i]));
    }
    for (std::byte* destination : destinations) {
      T* to = reinterpret_cast<T*>(destination) + begin;
      if constexpr (std::is_same_v<T, A>) {
        std::memcpy(to, sum, static_cast<size_t>(n) * sizeof(T));
      } else {
        for (int64_t i = 0; i < n; ++i) to[i] = T(sum[i]);
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

// Values that tests of collectives put into tensors, and what their reductions must be.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <type_traits>

#include "base/tensor.h"
#include "comm/communicator.h"

namespace triax::test {

/// Small integers: every sum of them is exact in every dtype.
inline double value(int rank, int64_t i) { return static_cast<double>((i * 7 + rank * 13) % 17 - 8); }

inline double combine(comm::ReduceOp op, double a, double b) {
  if (op == comm::ReduceOp::Sum) return a + b;
  return op == comm::ReduceOp::Max ? std::max(a, b) : std::min(a, b);
}

inline double reduced(comm::ReduceOp op, int ranks, int64_t i) {
  double result = value(0, i);
  for (int r = 1; r < ranks; ++r) result = combine(op, result, value(r, i));
  return result;
}

template <class T>
double as_double(T x) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, fp16>) {
    return static_cast<float>(x);
  } else {
    return static_cast<double>(x);
  }
}

template <class T>
T from_double(double x) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, fp16>) {
    return T(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

/// Calls f with the data as a typed pointer.
template <class F>
void with_data(const Tensor& t, F f) {
  switch (t.dtype()) {
    case DType::Float64:
      return f(t.as<double>());
    case DType::Float32:
      return f(t.as<float>());
    case DType::BFloat16:
      return f(t.as<bf16>());
    case DType::Float16:
      return f(t.as<fp16>());
    case DType::Int32:
      return f(t.as<int32_t>());
    case DType::Int64:
      return f(t.as<int64_t>());
    default:
      FAIL() << "dtype without a test";
  }
}

template <class F>
void fill(const Tensor& t, F f) {
  with_data(t, [&]<class T>(T* data) {
    for (int64_t i = 0; i < t.numel(); ++i) data[i] = from_double<T>(f(i));
  });
}

inline double at(const Tensor& t, int64_t i) {
  double result = 0;
  with_data(t, [&](const auto* data) { result = as_double(data[i]); });
  return result;
}

/// Index of the first element that differs from f, or -1.
template <class F>
int64_t first_wrong(const Tensor& t, F f) {
  int64_t wrong = -1;
  with_data(t, [&](const auto* data) {
    for (int64_t i = 0; i < t.numel() && wrong < 0; ++i) {
      if (as_double(data[i]) != f(i)) wrong = i;
    }
  });
  return wrong;
}

}  // namespace triax::test

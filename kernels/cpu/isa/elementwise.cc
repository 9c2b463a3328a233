// Copies and sums between types, scaling, and reductions of a run of elements.
#include "kernels/cpu/isa/math.h"
#include "kernels/cpu/isa/register.h"

namespace triax::kernels::TRIAX_ISA {
namespace {

template <class T, class U>
inline constexpr bool kSameCompute = sizeof(Compute<T>) == sizeof(Compute<U>);

template <class T, class U>
void copy(const void* x_data, void* y_data, int64_t size) {
  const T* x = static_cast<const T*>(x_data);
  U* y = static_cast<U*>(y_data);
  if constexpr (kSameCompute<T, U>) {
    for_lanes<Compute<T>>(size, [&](int64_t i, auto n) { store(load(x + i, n), y + i, n); });
  } else {
    for (int64_t i = 0; i < size; ++i) from_compute(static_cast<Compute<U>>(to_compute(x[i])), y + i);
  }
}

/// The sum is taken in the wider of the two compute types.
template <class T, class U>
void add(const void* x_data, void* y_data, int64_t size) {
  const T* x = static_cast<const T*>(x_data);
  U* y = static_cast<U*>(y_data);
  if constexpr (kSameCompute<T, U>) {
    for_lanes<Compute<T>>(size, [&](int64_t i, auto n) { store(load(y + i, n) + load(x + i, n), y + i, n); });
  } else {
    for (int64_t i = 0; i < size; ++i) {
      const double sum = static_cast<double>(to_compute(y[i])) + static_cast<double>(to_compute(x[i]));
      from_compute(static_cast<Compute<U>>(sum), y + i);
    }
  }
}

template <class T>
void scale(void* x_data, double factor, int64_t size) {
  using C = Compute<T>;
  T* x = static_cast<T*>(x_data);
  for_lanes<C>(size, [&](int64_t i, auto n) { store(load(x + i, n) * static_cast<C>(factor), x + i, n); });
}

/// Adds the squares of a vector, in double.
TRIAX_INLINE void squares(Vec<double> v, Pair<double>& sum) { sum.a = mul_add(v, v, sum.a); }
TRIAX_INLINE void squares(Vec<float> v, Pair<double>& sum) {
  typedef float Half __attribute__((vector_size(kVectorBytes / 2)));
  Half part[2];
  memcpy(part, &v, sizeof(v));
  const Vec<double> low = __builtin_convertvector(part[0], Vec<double>);
  const Vec<double> high = __builtin_convertvector(part[1], Vec<double>);
  sum.a = mul_add(low, low, sum.a);
  sum.b = mul_add(high, high, sum.b);
}

template <class T>
double sum_of_squares(const void* x_data, int64_t size) {
  const T* x = static_cast<const T*>(x_data);
  Pair<double> sum[2];
  for_lanes<Compute<T>>(size, [&](int64_t i, auto n) {
    const auto v = load(x + i, n);
    squares(first_of(v), sum[0]);
    if constexpr (IsPair<decltype(load(x + i, n))>::value) squares(second_of(v), sum[1]);
  });
  return sum_of_lanes(sum[0] + sum[1]);
}

/// By the bits of the exponent, which no optimisation of floating-point comparisons can undo.
template <class T, class Bits, int kMantissa>
int64_t count_special(const void* x_data, int64_t size) {
  constexpr Bits kExponent = static_cast<Bits>((static_cast<Bits>(~Bits{0}) >> 1) >> kMantissa << kMantissa);
  int64_t count = 0;
  const char* x = static_cast<const char*>(x_data);
  for (int64_t i = 0; i < size; ++i) {
    Bits bits;
    memcpy(&bits, x + i * static_cast<int64_t>(sizeof(T)), sizeof(Bits));
    count += (bits & kExponent) == kExponent ? 1 : 0;
  }
  return count;
}

/// Adds the blocks after the first onto it, in order.
template <class C>
void sum_partials(void* partial, int64_t blocks, int64_t block_stride, int64_t size) {
  C* total = static_cast<C*>(partial);
  for (int64_t b = 1; b < blocks; ++b) {
    const C* block = total + b * block_stride;
    for_lanes<C>(size, [&](int64_t i, auto n) { store(load(total + i, n) + load(block + i, n), total + i, n); });
  }
}

struct Fill {
  template <class T>
  static void fill(TypeKernels& k) {
    k.copy[0] = copy<T, double>;
    k.copy[1] = copy<T, float>;
    k.copy[2] = copy<T, Bf16>;
    k.copy[3] = copy<T, Fp16>;
    k.add[0] = add<T, double>;
    k.add[1] = add<T, float>;
    k.add[2] = add<T, Bf16>;
    k.add[3] = add<T, Fp16>;
    k.scale = scale<T>;
    k.sum_of_squares = sum_of_squares<T>;
  }
};

}  // namespace

void register_elementwise(KernelTable& table) {
  for_each_type<Fill>(table);
  table.type[0].count_nonfinite = count_special<double, uint64_t, 52>;
  table.type[1].count_nonfinite = count_special<float, uint32_t, 23>;
  table.type[2].count_nonfinite = count_special<Bf16, uint16_t, 7>;
  table.type[3].count_nonfinite = count_special<Fp16, uint16_t, 10>;
  table.type[0].sum_partials = sum_partials<double>;
  table.type[1].sum_partials = sum_partials<float>;
}

}  // namespace triax::kernels::TRIAX_ISA

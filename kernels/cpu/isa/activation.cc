// Rotary embedding, GELU and SwiGLU.
#include "kernels/cpu/isa/math.h"
#include "kernels/cpu/isa/register.h"

namespace triax::kernels::TRIAX_ISA {
namespace {

template <class T>
void rotary(const RotaryArgs& a, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const C sign = a.backward ? C{-1} : C{1};
  for (int64_t r = begin; r < end; ++r) {
    const C* cos = row_of<C>(a.cos, a.position[r]);
    const C* sin = row_of<C>(a.sin, a.position[r]);
    for (int64_t j = 0; j < a.heads; ++j) {
      T* low = row_of<T>(a.x, r) + j * a.head_dim;
      T* high = low + a.half;
      for_lanes<C>(a.half, [&](int64_t i, auto n) {
        const auto c = load(cos + i, n);
        const auto s = load(sin + i, n) * sign;
        const auto x0 = load(low + i, n);
        const auto x1 = load(high + i, n);
        store(mul_add(x0, c, -x1 * s), low + i, n);
        store(mul_add(x1, c, x0 * s), high + i, n);
      });
    }
  }
}

// With u = sqrt(2/pi) (x + 0.044715 x^3): 0.5 (1 + tanh u) = sigmoid(2u), which needs one exp and keeps its relative
// precision for very negative x.
constexpr double kTwoSqrt2OverPi = 1.5957691216057307117597842397375;
constexpr double kCubic = 0.044715;
// Beyond these GELU is 0 or x and SiLU 0 in every type. Without the bound the squares overflow, and the least sigmoid,
// 2^-126 for floats, times a very negative x is far from 0.
constexpr int kGeluBound = 30;
constexpr int kSiluBound = -1000;

template <class T>
void gelu_forward(const void* x_data, void* y_data, int64_t size) {
  using C = Compute<T>;
  const T* x = static_cast<const T*>(x_data);
  T* y = static_cast<T*>(y_data);
  for_lanes<C>(size, [&](int64_t i, auto n) {
    const auto v = at_least<C>(load(x + i, n), -kGeluBound);
    const auto u = v * mul_add(v * v, splat<C>(kTwoSqrt2OverPi * kCubic), splat<C>(kTwoSqrt2OverPi));
    store(v * sigmoid_of(u), y + i, n);
  });
}

template <class T>
void gelu_backward(const void* dy_data, const void* x_data, void* dx_data, int64_t size) {
  using C = Compute<T>;
  const T* dy = static_cast<const T*>(dy_data);
  const T* x = static_cast<const T*>(x_data);
  T* dx = static_cast<T*>(dx_data);
  for_lanes<C>(size, [&](int64_t i, auto n) {
    const auto v = clamp_to<C>(load(x + i, n), -kGeluBound, kGeluBound);
    const auto square = v * v;
    const auto u = v * mul_add(square, splat<C>(kTwoSqrt2OverPi * kCubic), splat<C>(kTwoSqrt2OverPi));
    const auto du = mul_add(square, splat<C>(3 * kTwoSqrt2OverPi * kCubic), splat<C>(kTwoSqrt2OverPi));
    const auto s = sigmoid_of(u);
    const auto slope = mul_add(v * s * (C{1} - s), du, s);
    store(load(dy + i, n) * slope, dx + i, n);
  });
}

template <class T>
void swiglu_forward(const void* x_data, void* y_data, int64_t cols) {
  using C = Compute<T>;
  const T* gate = static_cast<const T*>(x_data);
  const T* up = gate + cols;
  T* y = static_cast<T*>(y_data);
  for_lanes<C>(cols, [&](int64_t i, auto n) {
    const auto g = at_least<C>(load(gate + i, n), kSiluBound);
    store(g * sigmoid_of(g) * load(up + i, n), y + i, n);
  });
}

template <class T>
void swiglu_backward(const void* dy_data, const void* x_data, void* dx_data, int64_t cols) {
  using C = Compute<T>;
  const T* dy = static_cast<const T*>(dy_data);
  const T* x = static_cast<const T*>(x_data);
  T* dx = static_cast<T*>(dx_data);
  for_lanes<C>(cols, [&](int64_t i, auto n) {
    const auto g = at_least<C>(load(x + i, n), kSiluBound);
    const auto u = load(x + cols + i, n);
    const auto d = load(dy + i, n);
    const auto s = sigmoid_of(g);
    const auto silu = g * s;
    store(d * u * mul_add(silu, C{1} - s, s), dx + i, n);
    store(d * silu, dx + cols + i, n);
  });
}

struct Fill {
  template <class T>
  static void fill(TypeKernels& k) {
    k.rotary = rotary<T>;
    k.gelu_forward = gelu_forward<T>;
    k.gelu_backward = gelu_backward<T>;
    k.swiglu_forward = swiglu_forward<T>;
    k.swiglu_backward = swiglu_backward<T>;
  }
};

}  // namespace

void register_activation(KernelTable& table) { for_each_type<Fill>(table); }

}  // namespace triax::kernels::TRIAX_ISA

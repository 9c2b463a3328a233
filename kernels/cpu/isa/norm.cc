// LayerNorm and RMSNorm, row by row; the weight gradients of a block of rows go to a partial sum.
#include "kernels/cpu/isa/math.h"
#include "kernels/cpu/isa/register.h"

namespace triax::kernels::TRIAX_ISA {
namespace {

/// y = (x - mean) * rstd * gamma + beta, rstd = 1 / sqrt(mean((x - mean)^2) + eps); RMSNorm: mean = beta = 0.
template <class T, bool kCentered>
void forward_rows(const NormArgs& a, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const int64_t h = a.cols;
  const T* gamma = static_cast<const T*>(a.gamma);
  const T* beta = static_cast<const T*>(a.beta);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = row_of<T>(a.x, r);
    T* y = row_of<T>(a.y, r);
    C mean = 0;
    if (kCentered) {
      Pair<C> sum;
      for_lanes<C>(h, [&](int64_t i, auto n) { collect<C>(sum, load(x + i, n)); });
      mean = sum_of_lanes(sum) / static_cast<C>(h);
    }
    Pair<C> squares;
    for_lanes<C>(h, [&](int64_t i, auto n) {
      const auto d = first_lanes<C>(load(x + i, n) - mean, n, C{0});
      collect_product<C>(squares, d, d);
    });
    const C rstd = 1 / sqrt_of(sum_of_lanes(squares) / static_cast<C>(h) + static_cast<C>(a.eps));
    for_lanes<C>(h, [&](int64_t i, auto n) {
      const auto xhat = (load(x + i, n) - mean) * rstd;
      const auto g = load(gamma + i, n);
      store(kCentered ? mul_add(xhat, g, load(beta + i, n)) : xhat * g, y + i, n);
    });
    if (kCentered) static_cast<C*>(a.mean)[r] = mean;
    static_cast<C*>(a.rstd)[r] = rstd;
  }
}

/// With g = dy * gamma and xhat = (x - mean) * rstd: dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), without mean(g)
/// for RMSNorm; dgamma = sum over rows of dy * xhat, dbeta = sum of dy.
template <class T, bool kCentered>
void backward_rows(const NormGradArgs& a, int64_t begin, int64_t end, void* partial) {
  using C = Compute<T>;
  const int64_t h = a.cols;
  const T* gamma = static_cast<const T*>(a.gamma);
  C* dgamma = static_cast<C*>(partial);
  C* dbeta = partial == nullptr ? nullptr : dgamma + h;
  if (partial != nullptr) memset(partial, 0, sizeof(C) * 2 * static_cast<size_t>(h));
  for (int64_t r = begin; r < end; ++r) {
    const T* dy = row_of<T>(a.dy, r);
    const T* x = row_of<T>(a.x, r);
    T* dx = row_of<T>(a.dx, r);
    const C mean = kCentered ? static_cast<const C*>(a.mean)[r] : C{0};
    const C rstd = static_cast<const C*>(a.rstd)[r];
    Pair<C> sum_g;
    Pair<C> sum_gx;
    for_lanes<C>(h, [&](int64_t i, auto n) {
      const auto d = load(dy + i, n);
      const auto xhat = (load(x + i, n) - mean) * rstd;
      const auto g = d * load(gamma + i, n);  // zero in missing lanes
      if (kCentered) collect<C>(sum_g, g);
      collect_product<C>(sum_gx, g, xhat);
      if (partial != nullptr) {
        store(mul_add(d, xhat, load(dgamma + i, n)), dgamma + i, n);
        if (kCentered) store(load(dbeta + i, n) + d, dbeta + i, n);
      }
    });
    const C c1 = kCentered ? sum_of_lanes(sum_g) / static_cast<C>(h) : C{0};
    const C c2 = sum_of_lanes(sum_gx) / static_cast<C>(h);
    for_lanes<C>(h, [&](int64_t i, auto n) {
      const auto xhat = (load(x + i, n) - mean) * rstd;
      auto g = load(dy + i, n) * load(gamma + i, n);
      if (kCentered) g = g - c1;
      auto result = mul_add(-xhat, splat<C>(c2), g) * rstd;
      if (a.accumulate_dx) result = result + load(dx + i, n);
      store(result, dx + i, n);
    });
  }
}

template <class T>
void forward(const NormArgs& a, int64_t begin, int64_t end) {
  a.mean != nullptr ? forward_rows<T, true>(a, begin, end) : forward_rows<T, false>(a, begin, end);
}

template <class T>
void backward(const NormGradArgs& a, int64_t begin, int64_t end, void* partial) {
  a.mean != nullptr ? backward_rows<T, true>(a, begin, end, partial) : backward_rows<T, false>(a, begin, end, partial);
}

struct Fill {
  template <class T>
  static void fill(TypeKernels& k) {
    k.norm_forward = forward<T>;
    k.norm_backward = backward<T>;
  }
};

}  // namespace

void register_norm(KernelTable& table) { for_each_type<Fill>(table); }

}  // namespace triax::kernels::TRIAX_ISA

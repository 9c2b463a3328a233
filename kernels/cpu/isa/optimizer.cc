// Weight updates of a run of elements; weights, moments and gradients have the same type, fp64 or fp32.
#include "kernels/cpu/isa/math.h"
#include "kernels/cpu/isa/register.h"

namespace triax::kernels::TRIAX_ISA {
namespace {

/// Loshchilov & Hutter 2017 (arXiv 1711.05101, algorithm 2) with the bias corrections of Adam.
template <class C>
void adamw(const AdamWArgs& a, void* w_data, void* m_data, void* v_data, const void* g_data, int64_t size) {
  using V = Vec<C>;
  C* w = static_cast<C*>(w_data);
  C* m = static_cast<C*>(m_data);
  C* v = static_cast<C*>(v_data);
  const C* g = static_cast<const C*>(g_data);
  const V beta1 = splat(static_cast<C>(a.beta1));
  const V beta2 = splat(static_cast<C>(a.beta2));
  const V rest1 = splat(static_cast<C>(1 - a.beta1));
  const V rest2 = splat(static_cast<C>(1 - a.beta2));
  const V keep = splat(static_cast<C>(1 - a.learning_rate * a.weight_decay));
  const V step = splat(static_cast<C>(-a.learning_rate * a.inv_correction1));
  const C scale = static_cast<C>(a.grad_scale);
  const C inv_root = static_cast<C>(a.inv_sqrt_correction2);
  const C eps = static_cast<C>(a.eps);
  for_lanes<C>(size, [&](int64_t i, auto n) {
    const auto grad = load(g + i, n) * scale;
    const auto first = mul_add(beta1, load(m + i, n), rest1 * grad);
    const auto second = mul_add(beta2, load(v + i, n), rest2 * grad * grad);
    const auto denominator = mul_add(sqrt_of(second), splat(inv_root), splat(eps));
    store(first, m + i, n);
    store(second, v + i, n);
    store(mul_add(step, first / denominator, load(w + i, n) * keep), w + i, n);
  });
}

template <class C>
void sgd(const SgdArgs& a, void* w_data, void* momentum_data, const void* g_data, int64_t size) {
  using V = Vec<C>;
  C* w = static_cast<C*>(w_data);
  C* buf = static_cast<C*>(momentum_data);
  const C* g = static_cast<const C*>(g_data);
  const V momentum = splat(static_cast<C>(a.momentum));
  const V decay = splat(static_cast<C>(a.weight_decay));
  const V step = splat(static_cast<C>(-a.learning_rate));
  const C scale = static_cast<C>(a.grad_scale);
  for_lanes<C>(size, [&](int64_t i, auto n) {
    auto grad = load(g + i, n) * scale;
    if (buf != nullptr) {
      grad = mul_add(momentum, load(buf + i, n), grad);
      store(grad, buf + i, n);
    }
    const auto old = load(w + i, n);
    store(mul_add(step, mul_add(decay, old, grad), old), w + i, n);
  });
}

template <class C>
void fill(TypeKernels& k) {
  k.adamw = adamw<C>;
  k.sgd = sgd<C>;
}

}  // namespace

void register_optimizer(KernelTable& table) {
  fill<double>(table.type[0]);
  fill<float>(table.type[1]);
}

}  // namespace triax::kernels::TRIAX_ISA

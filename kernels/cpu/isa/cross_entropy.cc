// The three passes over a row of logits of the vocabulary-parallel cross-entropy.
#include "kernels/cpu/isa/math.h"
#include "kernels/cpu/isa/register.h"

namespace triax::kernels::TRIAX_ISA {
namespace {

template <class C>
constexpr C kLowest = -__builtin_inff();

template <class T>
void row_max(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  using C = Compute<T>;
  for (int64_t r = begin; r < end; ++r) {
    const T* logits = row_of<T>(a.logits, r);
    Pair<C> best{splat<C>(kLowest<C>), splat<C>(kLowest<C>)};
    for_lanes<C>(a.valid, [&](int64_t i, auto n) {
      collect_largest<C>(best, first_lanes<C>(load(logits + i, n), n, kLowest<C>));
    });
    static_cast<C*>(a.row_max)[r] = largest_lane(best);
  }
}

template <class T>
void row_sum(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  using C = Compute<T>;
  for (int64_t r = begin; r < end; ++r) {
    const T* logits = row_of<T>(a.logits, r);
    const C max = static_cast<const C*>(a.row_max)[r];
    Pair<C> sum;
    for_lanes<C>(a.valid, [&](int64_t i, auto n) {
      collect<C>(sum, first_lanes<C>(exp_of(load(logits + i, n) - max), n, C{0}));
    });
    static_cast<C*>(a.sum_exp)[r] = sum_of_lanes(sum);
    const int64_t t = a.target[r] - a.first;
    static_cast<C*>(a.target_logit)[r] = t >= 0 && t < a.valid ? to_compute(logits[t]) : C{0};
  }
}

template <class T>
void backward(const CrossEntropyArgs& a, int64_t begin, int64_t end) {
  using C = Compute<T>;
  for (int64_t r = begin; r < end; ++r) {
    T* logits = row_of<T>(a.logits, r);
    const C max = static_cast<const C*>(a.row_max)[r];
    const C factor = static_cast<C>(a.factor * (a.mask == nullptr ? 1.0 : static_cast<double>(a.mask[r])));
    const C inverse = 1 / static_cast<const C*>(a.sum_exp)[r];
    const int64_t t = a.target[r] - a.first;
    const bool here = t >= 0 && t < a.valid;
    const C target_logit = here ? to_compute(logits[t]) : C{0};
    for_lanes<C>(a.valid, [&](int64_t i, auto n) {
      store(exp_of(load(logits + i, n) - max) * inverse * factor, logits + i, n);
    });
    if (here) from_compute((exp_of(splat(target_logit - max))[0] * inverse - 1) * factor, logits + t);
    for (int64_t i = a.valid; i < a.cols; ++i) from_compute(C{0}, logits + i);
  }
}

struct Fill {
  template <class T>
  static void fill(TypeKernels& k) {
    k.cross_entropy_max = row_max<T>;
    k.cross_entropy_sum = row_sum<T>;
    k.cross_entropy_backward = backward<T>;
  }
};

}  // namespace

void register_cross_entropy(KernelTable& table) { for_each_type<Fill>(table); }

}  // namespace triax::kernels::TRIAX_ISA

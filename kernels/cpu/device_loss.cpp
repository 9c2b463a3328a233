// Embedding and vocabulary-parallel cross-entropy.
#include <cmath>
#include <cstring>

#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_device.h"

namespace triax::kernels {
namespace {

char* element(const Tensor& t, int64_t r, int64_t c) {
  return static_cast<char*>(t.data()) + (r * t.row_stride() + c) * static_cast<int64_t>(size_of(t.dtype()));
}

/// Value r of a vector of fp32 or fp64.
double value_at(const Tensor& t, int64_t r) {
  return t.dtype() == DType::Float64 ? static_cast<const double*>(t.data())[r] : static_cast<const float*>(t.data())[r];
}

CrossEntropyArgs loss_args(const char* operation, const Tensor& logits, int64_t first, int64_t valid,
                           const Tensor& target, const Tensor& row_max, const Tensor& sum_exp) {
  ensure(valid >= 0 && valid <= logits.cols(), "cross_entropy: more valid columns than columns");
  check_vector(operation, "row_max", row_max, compute_type(logits.dtype()), logits.rows());
  CrossEntropyArgs args{};
  args.logits = view_of(logits);
  args.cols = logits.cols();
  args.first = first;
  args.valid = valid;
  args.row_max = row_max.data();
  if (target) {
    check_vector(operation, "target", target, DType::Int32, logits.rows());
    check_vector(operation, "sum_exp", sum_exp, compute_type(logits.dtype()), logits.rows());
    args.target = target.as<int32_t>();
    args.sum_exp = sum_exp.data();
  }
  return args;
}

}  // namespace

void CpuDevice::embedding_forward(Tensor token, Tensor table, int64_t first, Accumulate accumulate, Tensor y) {
  check_vector("embedding_forward", "token", token, DType::Int32, y.rows());
  check_matrix("embedding_forward", "table", table, y.dtype(), table.rows(), y.cols());
  const int32_t* ids = token.as<int32_t>();
  const auto sum = kernels(y.dtype()).add[static_cast<size_t>(y.dtype())];
  const auto bytes = static_cast<size_t>(y.cols()) * size_of(y.dtype());
  threads_.ranges(y.rows(), row_grain(y.cols()), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      const int64_t id = ids[r] - first;
      const bool here = id >= 0 && id < table.rows();
      if (accumulate == Accumulate::Yes) {
        if (here) sum(element(table, id, 0), element(y, r, 0), y.cols());
      } else if (here) {
        std::memcpy(element(y, r, 0), element(table, id, 0), bytes);
      } else {
        std::memset(element(y, r, 0), 0, bytes);
      }
    }
  });
}

void CpuDevice::embedding_backward(Tensor token, Tensor dy, int64_t first, Tensor dtable) {
  check_vector("embedding_backward", "token", token, DType::Int32, dy.rows());
  ensure(dtable.cols() == dy.cols() && is_math_type(dtable.dtype()), "embedding_backward: dtable");
  const int32_t* ids = token.as<int32_t>();
  const auto sum = kernels(dy.dtype()).add[static_cast<size_t>(dtable.dtype())];
  // Every thread walks all tokens in order but adds only its columns, so that equal tokens are summed in order.
  threads_.ranges(dy.cols(), 64, [&](int64_t b, int64_t e) {
    for (int64_t r = 0; r < dy.rows(); ++r) {
      const int64_t id = ids[r] - first;
      if (id >= 0 && id < dtable.rows()) sum(element(dy, r, b), element(dtable, id, b), e - b);
    }
  });
}

void CpuDevice::cross_entropy_max(Tensor logits, int64_t valid, Tensor row_max) {
  const CrossEntropyArgs args = loss_args("cross_entropy_max", logits, 0, valid, Tensor(), row_max, Tensor());
  const TypeKernels& k = kernels(logits.dtype());
  threads_.ranges(logits.rows(), row_grain(logits.cols()),
                  [&](int64_t b, int64_t e) { k.cross_entropy_max(args, b, e); });
}

void CpuDevice::cross_entropy_sum(Tensor logits, int64_t first, int64_t valid, Tensor target, Tensor row_max,
                                  Tensor sum_exp, Tensor target_logit) {
  ensure(static_cast<bool>(target), "cross_entropy_sum: target is empty");
  CrossEntropyArgs args = loss_args("cross_entropy_sum", logits, first, valid, target, row_max, sum_exp);
  check_vector("cross_entropy_sum", "target_logit", target_logit, compute_type(logits.dtype()), logits.rows());
  args.target_logit = target_logit.data();
  const TypeKernels& k = kernels(logits.dtype());
  threads_.ranges(logits.rows(), row_grain(logits.cols()),
                  [&](int64_t b, int64_t e) { k.cross_entropy_sum(args, b, e); });
}

void CpuDevice::cross_entropy_loss(Tensor row_max, Tensor sum_exp, Tensor target_logit, Tensor mask, Tensor loss_sum) {
  const int64_t rows = row_max.numel();
  check_vector("cross_entropy_loss", "row_max", row_max, compute_type(row_max.dtype()), rows);
  check_vector("cross_entropy_loss", "sum_exp", sum_exp, row_max.dtype(), rows);
  check_vector("cross_entropy_loss", "target_logit", target_logit, row_max.dtype(), rows);
  if (mask) check_vector("cross_entropy_loss", "mask", mask, DType::Float32, rows);
  check_vector("cross_entropy_loss", "loss_sum", loss_sum, DType::Float64, 1);
  const float* weights = mask ? mask.as<float>() : nullptr;
  double sum = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const double weight = weights == nullptr ? 1.0 : static_cast<double>(weights[r]);
    if (weight == 0) continue;  // a masked row may hold anything
    sum += weight * (std::log(value_at(sum_exp, r)) + value_at(row_max, r) - value_at(target_logit, r));
  }
  *loss_sum.as<double>() += sum;
}

void CpuDevice::cross_entropy_backward(Tensor logits, int64_t first, int64_t valid, Tensor target, Tensor row_max,
                                       Tensor sum_exp, Tensor mask, double seed_factor, const StepBlock* step) {
  ensure(static_cast<bool>(target) && step != nullptr, "cross_entropy_backward: target or step is missing");
  CrossEntropyArgs args = loss_args("cross_entropy_backward", logits, first, valid, target, row_max, sum_exp);
  if (mask) check_vector("cross_entropy_backward", "mask", mask, DType::Float32, logits.rows());
  args.mask = mask ? mask.as<float>() : nullptr;
  args.factor = seed_factor * step->loss_scale;
  const TypeKernels& k = kernels(logits.dtype());
  threads_.ranges(logits.rows(), row_grain(logits.cols()),
                  [&](int64_t b, int64_t e) { k.cross_entropy_backward(args, b, e); });
}

}  // namespace triax::kernels

// Norms, rotary embedding, activations, dropout.
#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/row_sums.h"

namespace triax::kernels {
namespace {

/// Start of row r.
char* row(const Tensor& t, int64_t r) {
  return static_cast<char*>(t.data()) + r * t.row_stride() * static_cast<int64_t>(size_of(t.dtype()));
}

}  // namespace

void CpuDevice::layer_norm_forward(Tensor x, Tensor gamma, Tensor beta, double eps, Tensor y, Tensor mean,
                                   Tensor rstd) {
  const int64_t rows = x.rows();
  check_matrix("layer_norm_forward", "y", y, x.dtype(), rows, x.cols());
  check_vector("layer_norm_forward", "gamma", gamma, x.dtype(), x.cols());
  check_vector("layer_norm_forward", "beta", beta, x.dtype(), x.cols());
  check_vector("layer_norm_forward", "mean", mean, compute_type(x.dtype()), rows);
  check_vector("layer_norm_forward", "rstd", rstd, compute_type(x.dtype()), rows);
  const NormArgs args{view_of(x), view_of(y), gamma.data(), beta.data(), mean.data(), rstd.data(), x.cols(), eps};
  const TypeKernels& k = kernels(x.dtype());
  threads_.ranges(rows, row_grain(x.cols()), [&](int64_t b, int64_t e) { k.norm_forward(args, b, e); });
}

void CpuDevice::rms_norm_forward(Tensor x, Tensor gamma, double eps, Tensor y, Tensor rstd) {
  const int64_t rows = x.rows();
  check_matrix("rms_norm_forward", "y", y, x.dtype(), rows, x.cols());
  check_vector("rms_norm_forward", "gamma", gamma, x.dtype(), x.cols());
  check_vector("rms_norm_forward", "rstd", rstd, compute_type(x.dtype()), rows);
  const NormArgs args{view_of(x), view_of(y), gamma.data(), nullptr, nullptr, rstd.data(), x.cols(), eps};
  const TypeKernels& k = kernels(x.dtype());
  threads_.ranges(rows, row_grain(x.cols()), [&](int64_t b, int64_t e) { k.norm_forward(args, b, e); });
}

void CpuDevice::norm_backward(const NormGradArgs& args, DType dtype, int64_t rows, Tensor dgamma, Tensor dbeta) {
  const TypeKernels& k = kernels(dtype);
  if (!dgamma && !dbeta) {
    threads_.ranges(rows, row_grain(args.cols), [&](int64_t b, int64_t e) { k.norm_backward(args, b, e, nullptr); });
    return;
  }
  if (dgamma) check_vector("norm_backward", "dgamma", dgamma, dgamma.dtype(), args.cols);
  if (dbeta) check_vector("norm_backward", "dbeta", dbeta, dbeta.dtype(), args.cols);
  sum_over_rows(rows, compute_type(dtype), {dgamma, dbeta}, args.cols,
                [&](int64_t b, int64_t e, void* partial) { k.norm_backward(args, b, e, partial); });
}

void CpuDevice::layer_norm_backward(Tensor dy, Tensor x, Tensor gamma, Tensor mean, Tensor rstd, Tensor dx,
                                    Accumulate accumulate_dx, Tensor dgamma, Tensor dbeta) {
  const int64_t rows = x.rows();
  check_matrix("layer_norm_backward", "dy", dy, x.dtype(), rows, x.cols());
  check_matrix("layer_norm_backward", "dx", dx, x.dtype(), rows, x.cols());
  check_vector("layer_norm_backward", "gamma", gamma, x.dtype(), x.cols());
  check_vector("layer_norm_backward", "mean", mean, compute_type(x.dtype()), rows);
  check_vector("layer_norm_backward", "rstd", rstd, compute_type(x.dtype()), rows);
  norm_backward({view_of(dy), view_of(x), view_of(dx), gamma.data(), mean.data(), rstd.data(), x.cols(),
                 accumulate_dx == Accumulate::Yes},
                x.dtype(), rows, dgamma, dbeta);
}

void CpuDevice::rms_norm_backward(Tensor dy, Tensor x, Tensor gamma, Tensor rstd, Tensor dx, Accumulate accumulate_dx,
                                  Tensor dgamma) {
  const int64_t rows = x.rows();
  check_matrix("rms_norm_backward", "dy", dy, x.dtype(), rows, x.cols());
  check_matrix("rms_norm_backward", "dx", dx, x.dtype(), rows, x.cols());
  check_vector("rms_norm_backward", "gamma", gamma, x.dtype(), x.cols());
  check_vector("rms_norm_backward", "rstd", rstd, compute_type(x.dtype()), rows);
  norm_backward({view_of(dy), view_of(x), view_of(dx), gamma.data(), nullptr, rstd.data(), x.cols(),
                 accumulate_dx == Accumulate::Yes},
                x.dtype(), rows, dgamma, Tensor());
}

void CpuDevice::rotary(Tensor x, Tensor cos, Tensor sin, Tensor position, int64_t heads, RotaryDirection direction) {
  const int64_t rows = x.rows();
  ensure(heads > 0 && x.cols() % heads == 0, "rotary: columns are not heads * d");
  check_matrix("rotary", "cos", cos, compute_type(x.dtype()), cos.rows(), cos.cols());
  check_matrix("rotary", "sin", sin, cos.dtype(), cos.rows(), cos.cols());
  ensure(2 * cos.cols() <= x.cols() / heads, "rotary: the table is wider than a head");
  check_vector("rotary", "position", position, DType::Int32, rows);
  const int32_t* positions = position.as<int32_t>();
  for (int64_t r = 0; r < rows; ++r) {
    ensure(positions[r] >= 0 && positions[r] < cos.rows(), "rotary: a position lies outside the table");
  }
  const RotaryArgs args{view_of(x), view_of(cos),     view_of(sin), positions,
                        heads,      x.cols() / heads, cos.cols(),   direction == RotaryDirection::Backward};
  const TypeKernels& k = kernels(x.dtype());
  threads_.ranges(rows, row_grain(x.cols()), [&](int64_t b, int64_t e) { k.rotary(args, b, e); });
}

void CpuDevice::gelu_forward(Tensor x, Tensor y) {
  check_matrix("gelu_forward", "y", y, x.dtype(), x.rows(), x.cols());
  const TypeKernels& k = kernels(x.dtype());
  threads_.ranges(x.rows(), row_grain(x.cols()), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) k.gelu_forward(row(x, r), row(y, r), x.cols());
  });
}

void CpuDevice::gelu_backward(Tensor dy, Tensor x, Tensor dx) {
  check_matrix("gelu_backward", "dy", dy, x.dtype(), x.rows(), x.cols());
  check_matrix("gelu_backward", "dx", dx, x.dtype(), x.rows(), x.cols());
  const TypeKernels& k = kernels(x.dtype());
  threads_.ranges(x.rows(), row_grain(x.cols()), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) k.gelu_backward(row(dy, r), row(x, r), row(dx, r), x.cols());
  });
}

void CpuDevice::swiglu_forward(Tensor x, Tensor y) {
  check_matrix("swiglu_forward", "x", x, y.dtype(), y.rows(), 2 * y.cols());
  const TypeKernels& k = kernels(x.dtype());
  threads_.ranges(x.rows(), row_grain(x.cols()), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) k.swiglu_forward(row(x, r), row(y, r), y.cols());
  });
}

void CpuDevice::swiglu_backward(Tensor dy, Tensor x, Tensor dx) {
  check_matrix("swiglu_backward", "x", x, dy.dtype(), dy.rows(), 2 * dy.cols());
  check_matrix("swiglu_backward", "dx", dx, x.dtype(), x.rows(), x.cols());
  const TypeKernels& k = kernels(x.dtype());
  threads_.ranges(x.rows(), row_grain(x.cols()), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) k.swiglu_backward(row(dy, r), row(x, r), row(dx, r), dy.cols());
  });
}

void CpuDevice::bias_dropout_add_forward(Tensor x, Tensor bias, Tensor residual, const Dropout& dropout,
                                         const TokenIndex& index, Tensor y) {
  const int64_t rows = x.rows();
  check_matrix("bias_dropout_add_forward", "y", y, x.dtype(), rows, x.cols());
  if (bias) check_vector("bias_dropout_add_forward", "bias", bias, x.dtype(), x.cols());
  if (residual) check_matrix("bias_dropout_add_forward", "residual", residual, x.dtype(), rows, x.cols());
  const BiasDropoutArgs args{view_of(x), residual ? view_of(residual) : View{},
                             view_of(y), bias.data(),
                             x.cols(),   dropout_args("bias_dropout_add_forward", dropout, index, rows)};
  const TypeKernels& k = kernels(x.dtype());
  threads_.ranges(rows, row_grain(x.cols()), [&](int64_t b, int64_t e) { k.bias_dropout_forward(args, b, e); });
}

void CpuDevice::bias_dropout_backward(Tensor dy, const Dropout& dropout, const TokenIndex& index, Tensor dx,
                                      Tensor dbias) {
  const int64_t rows = dy.rows();
  check_matrix("bias_dropout_backward", "dx", dx, dy.dtype(), rows, dy.cols());
  const BiasDropoutArgs args{view_of(dy), View{},    view_of(dx),
                             nullptr,     dy.cols(), dropout_args("bias_dropout_backward", dropout, index, rows)};
  const TypeKernels& k = kernels(dy.dtype());
  if (!dbias) {
    if (!args.dropout.active && dx.data() == dy.data()) return;
    threads_.ranges(rows, row_grain(dy.cols()),
                    [&](int64_t b, int64_t e) { k.bias_dropout_backward(args, b, e, nullptr); });
    return;
  }
  check_vector("bias_dropout_backward", "dbias", dbias, dbias.dtype(), dy.cols());
  sum_over_rows(rows, compute_type(dy.dtype()), {dbias}, dy.cols(),
                [&](int64_t b, int64_t e, void* partial) { k.bias_dropout_backward(args, b, e, partial); });
}

}  // namespace triax::kernels

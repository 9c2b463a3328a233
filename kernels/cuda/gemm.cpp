// C[m,n] (+)= op(A) op(B) + bias by cuBLASLt (gemm_plans.h), and what follows a product, in its epilogue. fp32 products
// are IEEE (no TF32); sums are fp32. cuBLASLt on one stream gives the same bits every time.
//
// Epilogues, T tokens, e bytes an element, against a product and a pass of its own:
//   GELU: u and gelu(u) are written by the product; T n e bytes (the second reading of u) less of 3 T n e.
//   GELU's gradient: 2 T n e of 4 T n e. The gradient of a bias: nothing is read for it; T n e less, 16 n more (the
//     vector written, then added to the accumulated one).
// GELU is cuBLASLt's, the tanh form as ours, of the sum before it is rounded, only for 16-bit types: how exactly it
// takes tanh is not documented, and fp32 promises 1e-5. Products of fp8 operands take no epilogue but a bias: the
// gradient of a bias would sum what was rounded to fp8.
// The gradient of a bias comes from the weight gradient's product (BGRADB), whose fp32 output has it in fp32, summed
// over one micro-batch: an epilogue cannot accumulate a vector, so it goes to scratch and is added. It does not come
// with GELU's gradient (DGELU_BGRAD), where it has the 16-bit type of the output, and is due before the weight gradient
// is. Where weight gradients are 16-bit (--grad-reduce-in-bf16) the sums over rows are a pass of their own, in fp32.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/gemm_plans.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

constexpr uint32_t kAligned = 4;  // log2 of 16 bytes, which cuBLASLt's epilogues want

void check_gemm(const Gemm& g) {
  const int64_t m = op_rows(g.a, g.transpose_a), k = op_cols(g.a, g.transpose_a), n = op_cols(g.b, g.transpose_b);
  ensure(g.a && g.b && g.c && g.a.rank() == 2 && g.b.rank() == 2 && g.c.rank() == 2, "gemm: a, b, c must be matrices");
  // The texts are made only for a fault: a steady step takes nothing from the heap.
  if (op_rows(g.b, g.transpose_b) != k) {
    ensure(false, "gemm: op(a) is [m, k] and op(b) [k, n], but a is " + g.a.describe() + " and b is " + g.b.describe());
  }
  if (g.c.rows() != m || g.c.cols() != n) {
    ensure(false, "gemm: c is " + g.c.describe() + ", but op(a) op(b) is not of that shape");
  }
  ensure(g.a.dtype() == g.b.dtype(), "gemm: a and b must share a dtype");
  if (g.a.dtype() == DType::Float64) refuse_type("gemm", g.a.dtype());
  ensure(g.a.dtype() <= DType::Float16, "gemm: a and b must be floating");
  ensure(g.c.dtype() == g.a.dtype() || g.c.dtype() == DType::Float32, "gemm: dtype of c");
  if (g.bias) need_vector("gemm", "bias", g.bias, g.a.dtype(), n);
}

bool is_empty(const Gemm& g) { return g.c.numel() == 0 || g.a.numel() == 0; }
bool is_fp8(const Gemm& g) { return g.fp8_a.scale || g.fp8_b.scale; }

/// Whether cuBLASLt's GELU serves the product, `aux` beside it.
bool gelu_fits(const Gemm& g, const Tensor& aux) {
  constexpr int64_t kMultiple = 8;  // of the row stride of aux
  return !is_empty(g) && !is_fp8(g) && g.a.dtype() != DType::Float32 && g.c.dtype() == g.a.dtype() &&
         g.accumulate == Accumulate::No && aux.row_stride() % kMultiple == 0 && alignment_log2(aux) >= kAligned &&
         (!g.bias || alignment_log2(g.bias) >= kAligned);
}

}  // namespace

void CudaDevice::gemm(const Gemm& g) {
  check_gemm(g);
  if (g.c.rows() == 0 || g.c.cols() == 0) return;
  if (g.a.numel() == 0) {  // k = 0: an empty sum
    if (g.accumulate == Accumulate::No) fill(g.c, 0);
    if (g.bias) add_bias(g.bias, g.c);
    return;
  }
  if (is_fp8(g)) {
    gemm_fp8(g);
    return;
  }
  if (!multiply(g)) gemm_plain(g);
}

bool CudaDevice::multiply(const Gemm& g) {
  // The epilogue adds a bias of the output's type from an aligned address; any other is added by a pass of its own.
  if (g.bias && g.c.dtype() == g.bias.dtype() && alignment_log2(g.bias) >= kAligned &&
      plans_->run(g, {Epilogue::Kind::Bias, g.bias}, stream())) {
    return true;
  }
  if (!plans_->run(g, {}, stream())) return false;
  if (g.bias) add_bias(g.bias, g.c);
  return true;
}

void CudaDevice::gemm_gelu(const Gemm& g, Tensor y) {
  check_gemm(g);
  need_matrix("gemm_gelu", "y", y, g.c.dtype(), g.c.rows(), g.c.cols());
  if (gelu_fits(g, g.c)) {
    Gemm product = g;
    product.c = y;
    if (plans_->run(product, {Epilogue::Kind::Gelu, g.bias, g.c}, stream())) {
      ++special_calls_.gemm_epilogues;
      return;
    }
  }
  DiscreteDevice::gemm_gelu(g, y);
}

void CudaDevice::gemm_gelu_backward(const Gemm& g, Tensor x) {
  check_gemm(g);
  need_matrix("gemm_gelu_backward", "x", x, g.c.dtype(), g.c.rows(), g.c.cols());
  if (!g.bias && gelu_fits(g, x) && plans_->run(g, {Epilogue::Kind::GeluBackward, {}, x}, stream())) {
    ++special_calls_.gemm_epilogues;
    return;
  }
  DiscreteDevice::gemm_gelu_backward(g, x);
}

void CudaDevice::gemm_bias_backward(const Gemm& g, Tensor dbias) {
  check_gemm(g);
  ensure(g.transpose_a == Transpose::Yes && !g.bias, "gemm_bias_backward: a is dy, transposed, and there is no bias");
  need_vector("gemm_bias_backward", "dbias", dbias, dbias.dtype(), g.c.rows());
  if (!is_empty(g) && !is_fp8(g) && g.c.dtype() == DType::Float32 && dbias.dtype() == DType::Float32) {
    const Buffer sums = scratch(DType::Float32, g.c.rows());
    const Tensor vector = sums.view(DType::Float32, {g.c.rows()});
    if (plans_->run(g, {Epilogue::Kind::BiasGradient, vector}, stream())) {
      add(vector, dbias);
      ++special_calls_.gemm_epilogues;
      return;
    }
  }
  DiscreteDevice::gemm_bias_backward(g, dbias);
}

}  // namespace triax::kernels

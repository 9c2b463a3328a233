// Which library multiplies what: oneDNN fp32 and bf16; OpenBLAS fp64 and, without oneDNN, fp32; fp16 (and bf16 where
// oneDNN has nothing fast for it) is converted to fp32 in blocks. Weight gradients from bf16, op(A) = A^T into fp32,
// are multiplied by our own kernel on AVX512-BF16: oneDNN 2.6 transposes A there and is a tenth slower.
#include "kernels/cpu/blas_gemm.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/cpu_device.h"

namespace triax::kernels {
namespace {

constexpr int64_t kConvertRows = 256;  // rows of A and C that are converted at a time

/// Shape of op(t).
int64_t op_rows(const Tensor& t, Transpose transpose) { return transpose == Transpose::Yes ? t.cols() : t.rows(); }
int64_t op_cols(const Tensor& t, Transpose transpose) { return transpose == Transpose::Yes ? t.rows() : t.cols(); }

void check_gemm(const Gemm& g) {
  const int64_t m = op_rows(g.a, g.transpose_a);
  const int64_t k = op_cols(g.a, g.transpose_a);
  const int64_t n = op_cols(g.b, g.transpose_b);
  ensure(g.a && g.b && g.c && g.a.rank() == 2 && g.b.rank() == 2 && g.c.rank() == 2, "gemm: a, b, c must be matrices");
  // The texts are made only for a fault: a steady step takes nothing from the heap.
  if (op_rows(g.b, g.transpose_b) != k) {
    ensure(false, "gemm: op(a) is [m, k] and op(b) [k, n], but a is " + g.a.describe() + " and b is " + g.b.describe());
  }
  if (g.c.rows() != m || g.c.cols() != n) {
    ensure(false, "gemm: c is " + g.c.describe() + ", but op(a) op(b) is not of that shape");
  }
  ensure(is_math_type(g.a.dtype()) && g.a.dtype() == g.b.dtype(), "gemm: a and b must share a floating dtype");
  const bool half = g.a.dtype() == DType::BFloat16 || g.a.dtype() == DType::Float16;
  ensure(g.c.dtype() == g.a.dtype() || (half && g.c.dtype() == DType::Float32), "gemm: dtype of c");
  if (g.bias) check_vector("gemm", "bias", g.bias, g.a.dtype(), n);
}

}  // namespace

void CpuDevice::gemm(const Gemm& g) {
  check_gemm(g);
  if (g.c.rows() == 0 || g.c.cols() == 0) return;
  if (g.a.numel() == 0) {  // k = 0: an empty sum
    if (g.accumulate == Accumulate::No) fill(g.c, 0);
    for (int64_t r = 0; g.bias && r < g.c.rows(); ++r) add(g.bias.reshape({1, g.c.cols()}), g.c.row_slice(r, r + 1));
    return;
  }
  if (gemm_packed(g) || dnnl_.run(g)) return;
  if (g.a.dtype() == DType::Float64 || g.a.dtype() == DType::Float32) {
    gemm_with_blas(g);
  } else {
    gemm_converted(g);
  }
}

bool CpuDevice::gemm_packed(const Gemm& g) {
  constexpr int64_t kLeast = 64;  // tokens; the sides of C may be cut by tensor parallelism and must not decide
  const bool weight_gradient = g.transpose_a == Transpose::Yes && g.transpose_b == Transpose::No;
  if (!packed_bf16_ || !weight_gradient || g.a.dtype() != DType::BFloat16 || g.c.dtype() != DType::Float32)
    return false;
  const int64_t k = g.a.rows();
  const int64_t m = g.c.rows();
  const int64_t n = g.c.cols();
  if (k < kLeast) return false;
  const GemmArgs args{view_of(g.a), view_of(g.b), view_of(g.c), m, n, k, true, false, g.accumulate == Accumulate::Yes,
                      true,         g.bias.data()};
  const TypeKernels& kernel = kernels(g.a.dtype());
  // Each thread packs all of the operand that is not cut: the longer side of C is.
  const bool cut_rows = m >= n;
  const int64_t bytes = kernel.gemm_bytes(args, m);
  const Buffer scratch = workspace_.allocate(static_cast<size_t>(bytes * threads_.count()), MemoryCategory::Workspace);
  const int64_t pieces = threads_.count();
  threads_.ranges(pieces, 1, [&](int64_t first, int64_t end) {
    for (int64_t p = first; p < end; ++p) {
      const int64_t size = cut_rows ? m : n;
      const int64_t from = size * p / pieces;
      const int64_t to = size * (p + 1) / pieces;
      char* const memory = static_cast<char*>(scratch.data()) + bytes * p;
      cut_rows ? kernel.gemm(args, from, to, 0, n, memory) : kernel.gemm(args, 0, m, from, to, memory);
    }
  });
  return true;
}

void CpuDevice::gemm_with_blas(const Gemm& g) {
  Gemm plain = g;
  if (g.bias) {  // C starts as the bias (added to what is there) and accumulates the product
    const Tensor bias = g.bias.reshape({1, g.c.cols()});
    for (int64_t r = 0; r < g.c.rows(); ++r) {
      const Tensor row = g.c.row_slice(r, r + 1);
      g.accumulate == Accumulate::Yes ? add(bias, row) : copy(bias, row);
    }
    plain.bias = Tensor();
    plain.accumulate = Accumulate::Yes;
  }
  blas_gemm(plain, threads_.count());
}

void CpuDevice::gemm_converted(const Gemm& g) {
  const int64_t m = g.c.rows();
  const int64_t n = g.c.cols();
  const int64_t k = op_cols(g.a, g.transpose_a);
  const int64_t block = std::min(m, kConvertRows);
  const bool convert_c = g.c.dtype() != DType::Float32;
  const auto scratch = [&](int64_t elements) {
    return workspace_.allocate(DType::Float32, elements, MemoryCategory::Workspace);
  };
  const Buffer b_buffer = scratch(k * n);
  const Buffer a_buffer = scratch(block * k);
  const Buffer c_buffer = convert_c ? scratch(block * n) : Buffer();
  const Buffer bias_buffer = g.bias ? scratch(n) : Buffer();
  Gemm single = g;
  single.b = b_buffer.view(DType::Float32, {g.b.rows(), g.b.cols()});
  copy(g.b, single.b);
  if (g.bias) {
    single.bias = bias_buffer.view(DType::Float32, {n});
    copy(g.bias, single.bias);
  }
  for (int64_t begin = 0; begin < m; begin += block) {
    const int64_t end = std::min(begin + block, m);
    const bool transposed = g.transpose_a == Transpose::Yes;
    single.a =
        transposed ? a_buffer.view(DType::Float32, {k, end - begin}) : a_buffer.view(DType::Float32, {end - begin, k});
    copy(transposed ? g.a.col_slice(begin, end) : g.a.row_slice(begin, end), single.a);
    const Tensor c = g.c.row_slice(begin, end);
    single.c = convert_c ? c_buffer.view(DType::Float32, {end - begin, n}) : c;
    if (convert_c && g.accumulate == Accumulate::Yes) copy(c, single.c);
    gemm(single);
    if (convert_c) copy(single.c, c);
  }
}

}  // namespace triax::kernels

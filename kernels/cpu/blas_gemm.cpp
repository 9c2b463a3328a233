#include "kernels/cpu/blas_gemm.h"

#include <cblas.h>

#include <limits>

namespace triax::kernels {
namespace {

blasint narrow(int64_t n) {
  ensure(n <= std::numeric_limits<blasint>::max(), "gemm: a dimension exceeds OpenBLAS's integers");
  return static_cast<blasint>(n);
}

}  // namespace

void blas_gemm(const Gemm& g, int threads) {
  if (openblas_get_num_threads() != threads) openblas_set_num_threads(threads);
  const CBLAS_TRANSPOSE ta = g.transpose_a == Transpose::Yes ? CblasTrans : CblasNoTrans;
  const CBLAS_TRANSPOSE tb = g.transpose_b == Transpose::Yes ? CblasTrans : CblasNoTrans;
  const blasint m = narrow(g.c.rows());
  const blasint n = narrow(g.c.cols());
  const blasint k = narrow(g.transpose_a == Transpose::Yes ? g.a.rows() : g.a.cols());
  const blasint lda = narrow(g.a.row_stride());
  const blasint ldb = narrow(g.b.row_stride());
  const blasint ldc = narrow(g.c.row_stride());
  const bool add = g.accumulate == Accumulate::Yes;
  if (g.a.dtype() == DType::Float64) {
    cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, 1.0, g.a.as<double>(), lda, g.b.as<double>(), ldb, add ? 1.0 : 0.0,
                g.c.as<double>(), ldc);
  } else {
    cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, 1.0f, g.a.as<float>(), lda, g.b.as<float>(), ldb, add ? 1.0f : 0.0f,
                g.c.as<float>(), ldc);
  }
}

std::string blas_description() {
  const std::string config = openblas_get_config();  // "OpenBLAS 0.3.21 NO_LAPACKE ..."
  return config.substr(0, config.find(' ', config.find(' ') + 1));
}

}  // namespace triax::kernels

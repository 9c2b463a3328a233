// GEMM by OpenBLAS: fp64, and fp32 where oneDNN is absent.
#pragma once

#include <string>

#include "kernels/device.h"

namespace triax::kernels {

/// C (+)= op(A) op(B) for fp64 or fp32, all of one dtype, without bias. Deterministic for a thread count.
void blas_gemm(const Gemm& g, int threads);
/// "OpenBLAS 0.3.21".
std::string blas_description();

}  // namespace triax::kernels

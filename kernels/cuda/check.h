// Every status of CUDA and cuBLASLt is checked; a failure is an ApiError with the call's text, the library's words and
// the place. A launch is checked under the kernel's name; what goes wrong while it runs shows at the next synchronising
// call.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "base/error.h"

#if defined(TRIAX_EMULATED)
#include <simt_apart.h>
#define TRIAX_CALL(call) (::triax::simt::Apart{}, (call))
#else
#define TRIAX_CALL(call) (call)
#endif

namespace triax::kernels {

inline void cuda_check(cudaError_t status, const char* call, const char* file, int line) {
  if (status != cudaSuccess) throw ApiError("CUDA", call, status, cudaGetErrorString(status), file, line);
}
/// The answer to "is it done?". "Not yet" stays behind as the thread's last error, which the next launch would take for
/// its own.
inline bool cuda_done(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaErrorNotReady) return static_cast<void>(cudaGetLastError()), false;
  cuda_check(status, call, file, line);
  return true;
}
inline void cublaslt_check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw ApiError("cuBLASLt", call, status, cublasLtGetStatusString(status), file, line);
  }
}

}  // namespace triax::kernels

#define TRIAX_CUDA(call) ::triax::kernels::cuda_check(TRIAX_CALL(call), #call, __FILE__, __LINE__)
#define TRIAX_CUDA_DONE(call) ::triax::kernels::cuda_done(TRIAX_CALL(call), #call, __FILE__, __LINE__)
#define TRIAX_CUBLASLT(call) ::triax::kernels::cublaslt_check(TRIAX_CALL(call), #call, __FILE__, __LINE__)

// Every status of NCCL is checked; a failure is an ApiError with the call's text, the library's words and the place.
#pragma once

#include <nccl.h>

#include "kernels/cuda/check.h"

namespace triax::comm {

inline void nccl_check(ncclResult_t status, const char* call, const char* file, int line) {
  if (status == ncclSuccess) return;
  const std::string detail = ncclGetLastError(nullptr);
  throw ApiError("NCCL", call, status, ncclGetErrorString(status) + (detail.empty() ? "" : "; " + detail), file, line);
}

}  // namespace triax::comm

#define TRIAX_NCCL(call) ::triax::comm::nccl_check(TRIAX_CALL(call), #call, __FILE__, __LINE__)

// Turns MPI error codes into ApiError.
#pragma once

#include <mpi.h>

namespace triax::comm {

/// Throws ApiError with MPI's own words for `code`.
[[noreturn]] void throw_mpi_error(const char* call, int code, const char* file, int line);

}  // namespace triax::comm

/// Every MPI call goes through this. The communicators have MPI_ERRORS_RETURN, else the code would never be seen.
#define TRIAX_MPI(call)                                                          \
  do {                                                                           \
    const int triax_mpi_code = (call);                                           \
    if (triax_mpi_code != MPI_SUCCESS) {                                         \
      ::triax::comm::throw_mpi_error(#call, triax_mpi_code, __FILE__, __LINE__); \
    }                                                                            \
  } while (false)

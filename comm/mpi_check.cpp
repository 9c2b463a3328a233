#include "comm/mpi_check.h"

#include <string>

#include "base/error.h"

namespace triax::comm {

void throw_mpi_error(const char* call, int code, const char* file, int line) {
  std::string words(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  if (MPI_Error_string(code, words.data(), &length) != MPI_SUCCESS) length = 0;
  words.resize(static_cast<size_t>(length));
  throw ApiError("MPI", call, code, words, file, line);
}

}  // namespace triax::comm

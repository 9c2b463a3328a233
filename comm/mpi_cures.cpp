#include "comm/mpi_cures.h"

#include <dlfcn.h>

namespace triax::comm {
namespace {

/// True when a library that looks for `symbol` finds it in the program or library that holds this function.
bool defined_here(const char* symbol) {
  void* found = dlsym(RTLD_DEFAULT, symbol);
  Dl_info theirs{};
  Dl_info ours{};
  return found != nullptr && dladdr(found, &theirs) != 0 && dladdr(reinterpret_cast<void*>(&mpi_cures), &ours) != 0 &&
         theirs.dli_fbase == ours.dli_fbase;
}

}  // namespace

std::string mpi_cures() {
  std::string cures;
  if (defined_here("ucp_worker_progress")) cures += "idle progress yields";
  if (defined_here("ucp_disconnect_nb") && defined_here("MPI_Finalize")) {
    cures += cures.empty() ? "finalize without flush" : ", finalize without flush";
  }
  return cures.empty() ? "none" : "mpich-ucx: " + cures;
}

}  // namespace triax::comm

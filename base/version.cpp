#include "base/version.h"

#include "triax_build.h"
#include "triax_commit.h"

namespace triax {

BuildInfo build_info() {
  return {TRIAX_VERSION, TRIAX_COMMIT, TRIAX_COMPILER, TRIAX_BUILD_TYPE, TRIAX_CXX_FLAGS,
          TRIAX_MPI,     TRIAX_HDF5,   TRIAX_DNNL,     TRIAX_CUDA};
}

std::vector<std::pair<std::string, std::string>> build_info_rows() {
  const BuildInfo info = build_info();
  return {{"version", info.version},
          {"commit", info.commit},
          {"compiler", info.compiler},
          {"build_type", info.build_type},
          {"cxx_flags", info.cxx_flags},
          {"mpi", info.mpi},
          {"hdf5", info.hdf5},
          {"dnnl", info.dnnl},
          {"cuda", info.cuda}};
}

}  // namespace triax

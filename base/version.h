// What this binary is: version, commit, compiler and the libraries it was built with.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace triax {

/// All are known at build time; nothing here asks the machine it runs on.
struct BuildInfo {
  std::string version;     // SemVer, project(VERSION)
  std::string commit;      // 12 hex digits, "-dirty" when tracked files differ, "unknown" outside a git checkout
  std::string compiler;    // "GNU 12.2.0"
  std::string build_type;  // "Release"
  std::string cxx_flags;   // "-O3 -DNDEBUG"
  std::string mpi;         // "MPICH 4.0.2"
  std::string hdf5;        // "1.10.8"
  std::string dnnl;        // "2.6", or "none" (OpenBLAS alone)
  std::string cuda;        // "none" in a build without the CUDA backend
};

BuildInfo build_info();

/// The same as rows (name, value) for --version and run.json, in the order above.
std::vector<std::pair<std::string, std::string>> build_info_rows();

}  // namespace triax

// Which cures of MPI libraries this executable contains.
#pragma once

#include <string>

namespace triax::comm {

/// For --version: "mpich-ucx: idle progress yields, finalize without flush", or "none". Says what takes effect: whether
/// the dynamic linker really finds this executable's definitions first.
std::string mpi_cures();

}  // namespace triax::comm

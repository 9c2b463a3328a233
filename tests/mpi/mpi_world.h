// What the MPI tests share with their main(): the session it made.
#pragma once

#include "comm/mpi_session.h"

namespace triax::test {

/// Defined in tests/mpi/main.cc.
comm::MpiSession& session();

}  // namespace triax::test

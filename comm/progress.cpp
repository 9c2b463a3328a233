#include "comm/progress.h"

#include "comm/mpi_check.h"

namespace triax::comm {

void Progress::poll() {
  int flag = 0;
  TRIAX_MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
}

}  // namespace triax::comm

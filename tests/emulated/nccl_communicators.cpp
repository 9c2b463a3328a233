// Communicators of NCCL's stand-in. As the library's, they are made, and take operations, behind the caller's back:
// ncclCommGetAsyncError says when that is done.
#include <mpi.h>
#include <nccl.h>
#include <simt_apart.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "gpu.h"
#include "nccl_state.h"

using triax::emulated::fail;
using triax::emulated::Gpu;
using triax::emulated::last_error;

namespace {

constexpr int kMeetingTag = 1 << 16, kFirstTag = 1 << 17;
constexpr double kAbort_s = 10;

struct Identity {
  int maker = 0, tag = 0;
};

[[noreturn]] void die(const char* words) {
  std::fprintf(stderr, "emulated NCCL: %s\n", words);
  std::_Exit(99);
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t status) {
  switch (status) {
    case ncclSuccess:
      return "no error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "internal error";
  }
}
const char* ncclGetLastError(ncclComm_t) { return last_error().c_str(); }
ncclResult_t ncclGetVersion(int* version) { return *version = 21800, ncclSuccess; }

// ---- Communicators --------------------------------------------------------------------------------------------------

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int made = 0;
  int size = 0;
  Identity identity;
  MPI_Comm_rank(MPI_COMM_WORLD, &identity.maker);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  identity.tag = kFirstTag + identity.maker + size * made++;
  *id = {};
  std::memcpy(id->internal, &identity, sizeof identity);
  return ncclSuccess;
}

// Everybody tells the maker of the id where it is, and hears from it where the others are.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0) return fail(ncclInvalidArgument, "the stand-in has no blocking communicators");
  Identity identity;
  std::memcpy(&identity, id.internal, sizeof identity);
  auto made = std::make_unique<EmulatedNccl>();
  made->rank = rank;
  made->tag = identity.tag;
  made->world.assign(static_cast<size_t>(ranks), -1);
  int me = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  if (me == identity.maker) {
    made->world[static_cast<size_t>(rank)] = me;
    for (int i = 1; i < ranks; ++i) {
      MPI_Status status;
      int other = 0;
      MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, identity.tag, MPI_COMM_WORLD, &status);
      made->world[static_cast<size_t>(other)] = status.MPI_SOURCE;
    }
    for (const int other : made->world) {
      if (other != me) MPI_Send(made->world.data(), ranks, MPI_INT, other, kMeetingTag, MPI_COMM_WORLD);
    }
  } else {
    MPI_Send(&rank, 1, MPI_INT, identity.maker, identity.tag, MPI_COMM_WORLD);
    MPI_Recv(made->world.data(), ranks, MPI_INT, identity.maker, kMeetingTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  *comm = made.release();
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const triax::simt::Apart apart;
  *state = ncclInProgress;
  if (comm->polls > 0) return --comm->polls, ncclSuccess;
  if (comm->starting && !comm->aborted) {
    int all = 0;
    MPI_Testall(static_cast<int>(comm->connecting.size()), comm->connecting.data(), &all, MPI_STATUSES_IGNORE);
    if (all == 0) return ncclSuccess;
    comm->connecting.clear();
    std::exchange(comm->starting, {})();
  }
  *state = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm->in_flight != 0) die("a communicator is finalized with operations in flight");
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->in_flight != 0) die("a communicator is destroyed with operations in flight");
  if (!comm->registered.empty()) die("a communicator is destroyed with buffers registered");
  std::unique_ptr<EmulatedNccl>{comm};
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const triax::simt::Apart apart;
  comm->aborted = true;  // its tasks look at it: it stays
  if (std::exchange(comm->starting, {})) --comm->in_flight;
  // The library frees the memory of the communicator, which waits for all that runs on the GPU.
  if (!Gpu::instance().drain_within(kAbort_s)) {
    die("ncclCommAbort waits for an operation of another communicator: all are to be aborted at the same time");
  }
  return ncclSuccess;
}

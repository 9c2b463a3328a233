// What every communicator over MPI has: who is in it, a tag space of its own, messages in flight.
#pragma once

#include <mpi.h>

#include <span>
#include <vector>

#include "base/handle.h"
#include "comm/progress.h"
#include "comm/wait.h"

namespace triax::comm {

struct MpiCommPolicy {
  using type = MPI_Comm;
  static type null() noexcept { return MPI_COMM_NULL; }
  static void destroy(type comm) noexcept { MPI_Comm_free(&comm); }
};
using MpiComm = Handle<MpiCommPolicy>;

/// Collective over `comm`: the same ranks in a tag space of their own, errors returned.
MpiComm duplicate(MPI_Comm comm);

/// Bytes of one MPI message: its counts are int.
inline constexpr int64_t kMessageBytes = int64_t{1} << 30;

/// Communicator base: rank, size, name, send and recv through MPI. Collectives are the subclasses' business.
class MpiGroup : public Communicator {
 public:
  /// Takes the communicator over.
  MpiGroup(MpiComm comm, GroupInfo group);
  int rank() const override { return group_.rank; }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.name; }
  Work send(Tensor t, int peer, int tag) override;
  Work recv(Tensor t, int peer, int tag) override;

 protected:
  GroupInfo group_;
  MpiComm messages_;  ///< of send and recv

 private:
  int64_t messages_started_ = 0;
};

}  // namespace triax::comm

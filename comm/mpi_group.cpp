#include "comm/mpi_group.h"

#include <algorithm>

#include "comm/mpi_check.h"

namespace triax::comm {
namespace {

/// A message in flight: one MPI request for every 2^30 bytes.
class Message final : public Work::State {
 public:
  Message(const GroupInfo& group, Progress& progress, Operation op, int peer, int64_t sequence)
      : group_(&group), progress_(&progress), op_(op), peer_(peer), sequence_(sequence) {
    progress_->message_started();
  }
  ~Message() override {
    progress_->message_ended();
    // Given up (its wait threw): MPI keeps the request until the job ends.
    if (first_ != MPI_REQUEST_NULL) MPI_Request_free(&first_);
    for (MPI_Request& request : rest_) {
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  void start(Tensor t, int tag, MPI_Comm comm) {
    auto* data = static_cast<std::byte*>(t.data());
    int64_t left = t.bytes();
    first_ = start_piece(data, std::min(left, kMessageBytes), tag, comm);
    while ((left -= kMessageBytes) > 0) {
      data += kMessageBytes;
      rest_.push_back(start_piece(data, std::min(left, kMessageBytes), tag, comm));
    }
  }

  void wait() override {
    wait_all({&first_, 1}, {&peer_, 1}, *group_, op_, sequence_);
    const std::vector<int> peers(rest_.size(), peer_);
    wait_all(rest_, peers, *group_, op_, sequence_);
  }

  bool test() override {
    int done = 0;
    TRIAX_MPI(MPI_Test(&first_, &done, MPI_STATUS_IGNORE));
    if (done == 0 || rest_.empty()) return done != 0;
    TRIAX_MPI(MPI_Testall(static_cast<int>(rest_.size()), rest_.data(), &done, MPI_STATUSES_IGNORE));
    return done != 0;
  }

 private:
  MPI_Request start_piece(std::byte* data, int64_t bytes, int tag, MPI_Comm comm) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (op_ == Operation::Send) {
      TRIAX_MPI(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer_, tag, comm, &request));
    } else {
      TRIAX_MPI(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer_, tag, comm, &request));
    }
    return request;
  }

  const GroupInfo* group_;
  Progress* progress_;
  Operation op_;
  int peer_;
  int64_t sequence_;
  MPI_Request first_ = MPI_REQUEST_NULL;
  std::vector<MPI_Request> rest_;
};

}  // namespace

MpiGroup::MpiGroup(MpiComm comm, GroupInfo group, Progress& progress)
    : group_(std::move(group)), progress_(&progress), messages_(std::move(comm)) {
  TRIAX_MPI(MPI_Comm_set_errhandler(messages_.get(), MPI_ERRORS_RETURN));
}

Work MpiGroup::send(Tensor t, int peer, int tag) {
  ensure(t.contiguous() && peer >= 0 && peer < size() && tag >= 0, "send: contiguous tensor, peer of the group, tag >= 0");
  auto message = std::make_unique<Message>(group_, *progress_, Operation::Send, peer, ++messages_started_);
  message->start(t, tag, messages_.get());
  return Work(std::move(message));
}

Work MpiGroup::recv(Tensor t, int peer, int tag) {
  ensure(t.contiguous() && peer >= 0 && peer < size() && tag >= 0, "recv: contiguous tensor, peer of the group, tag >= 0");
  auto message = std::make_unique<Message>(group_, *progress_, Operation::Recv, peer, ++messages_started_);
  message->start(t, tag, messages_.get());
  return Work(std::move(message));
}

}  // namespace triax::comm

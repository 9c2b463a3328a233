#include "comm/mpi_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/mpi_check.h"
#include "comm/tensor_bytes.h"

namespace triax::comm {
namespace {

/// A message in flight: one MPI request for every 2^30 bytes.
class Message final : public Work::State {
 public:
  Message(const GroupInfo& group, Operation op, int peer, int64_t sequence)
      : group_(&group), op_(op), peer_(peer), sequence_(sequence) {
    group_->progress->message_started();
  }
  ~Message() override {
    group_->progress->message_ended();
    // Given up (its wait threw): MPI keeps the request until the job ends.
    if (first_ != MPI_REQUEST_NULL) MPI_Request_free(&first_);
    for (MPI_Request& request : rest_) {
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  void start(Tensor t, int tag, MPI_Comm comm) {
    bytes_ = t.bytes();
    auto* data = bytes_of(t);
    int64_t left = t.bytes();
    first_ = start_piece(data, std::min(left, kMessageBytes), tag, comm);
    while ((left -= kMessageBytes) > 0) {
      data += kMessageBytes;
      rest_.push_back(start_piece(data, std::min(left, kMessageBytes), tag, comm));
    }
  }

  void wait() override {
    Backoff backoff(*group_);
    while (!test()) {
      if (!backoff.pause()) throw_peer_lost(*group_, op_, sequence_, backoff.waited_s(), {&peer_, 1});
    }
  }

  bool test() override {
    if (!complete(first_)) return false;
    for (MPI_Request& request : rest_) {
      if (!complete(request)) return false;
    }
    if (op_ == Operation::Recv && received_ != bytes_) {
      throw RunTimeError(fmt::format("group {}: rank {} sent {} bytes, but rank {} expects {}", group_->name, peer_,
                                     std::exchange(received_, bytes_), group_->rank, bytes_));
    }
    return true;
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

  /// Tests one request; counts what it received.
  bool complete(MPI_Request& request) {
    if (request == MPI_REQUEST_NULL) return true;
    int done = 0;
    int count = 0;
    MPI_Status status;
    TRIAX_MPI(MPI_Test(&request, &done, &status));
    if (done == 0) return false;
    if (op_ == Operation::Recv) {
      TRIAX_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
      received_ += count;
    }
    return true;
  }

  const GroupInfo* group_;
  Operation op_;
  int peer_;
  int64_t sequence_;
  int64_t bytes_ = 0;
  int64_t received_ = 0;
  MPI_Request first_ = MPI_REQUEST_NULL;
  std::vector<MPI_Request> rest_;
};

}  // namespace

MpiComm duplicate(MPI_Comm comm) {
  MpiComm copy;
  TRIAX_MPI(MPI_Comm_dup(comm, copy.out()));
  TRIAX_MPI(MPI_Comm_set_errhandler(copy.get(), MPI_ERRORS_RETURN));
  return copy;
}

MpiGroup::MpiGroup(MpiComm comm, GroupInfo group) : group_(std::move(group)), messages_(std::move(comm)) {
  TRIAX_MPI(MPI_Comm_set_errhandler(messages_.get(), MPI_ERRORS_RETURN));
}

Work MpiGroup::send(Tensor t, int peer, int tag) {
  ensure(t.contiguous() && peer >= 0 && peer < size() && tag >= 0,
         "send: contiguous tensor, peer of the group, tag >= 0");
  auto message = std::make_unique<Message>(group_, Operation::Send, peer, ++messages_started_);
  message->start(t, tag, messages_.get());
  return Work(std::move(message));
}

Work MpiGroup::recv(Tensor t, int peer, int tag) {
  ensure(t.contiguous() && peer >= 0 && peer < size() && tag >= 0,
         "recv: contiguous tensor, peer of the group, tag >= 0");
  auto message = std::make_unique<Message>(group_, Operation::Recv, peer, ++messages_started_);
  message->start(t, tag, messages_.get());
  return Work(std::move(message));
}

}  // namespace triax::comm

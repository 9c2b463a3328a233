// Runs the operations of a communicator on the communication thread, so that they overlap the caller's computation.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/comm_thread.h"
#include "comm/communicator.h"
#include "comm/ledger.h"
#include "comm/ledger_comm.h"

namespace triax::comm {

/// Calls return at once; Work::wait joins, and its time goes into the ledger as exposed. Operations run in the order of
/// the calls; after a failure all later ones fail likewise. send and recv go to the inner communicator at once: they do
/// not block.
class QueuedCommunicator final : public Communicator {
 public:
  QueuedCommunicator(std::unique_ptr<Communicator> inner, CommThread& thread, Ledger& ledger,
                     const CallRecord& record = {});
  /// All Work must have been waited for.
  ~QueuedCommunicator() override;
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  Work all_reduce(Tensor t, ReduceOp op) override;
  Work reduce(Tensor t, ReduceOp op, int root) override;
  Work all_gather(Tensor in, Tensor out) override;
  Work all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) override;
  Work reduce_scatter(Tensor in, Tensor out, ReduceOp op) override;
  Work reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) override;
  Work broadcast(Tensor t, int root) override;
  Work all_to_all(Tensor in, Tensor out) override;
  Work send(Tensor t, int peer, int tag) override { return inner_->send(t, peer, tag); }
  Work recv(Tensor t, int peer, int tag) override { return inner_->recv(t, peer, tag); }
  void barrier() override;
  Tensor allocate_symmetric(DType dtype, int64_t elements) override {
    return inner_->allocate_symmetric(dtype, elements);
  }

 private:
  class Command;
  class Pending;
  Command& next_command(Operation op);
  Work post(Command& command);

  std::unique_ptr<Communicator> inner_;
  CommThread* thread_;
  Ledger* ledger_;
  CallRecord record_;  ///< of waits for the thread
  std::mutex mutex_;   ///< of the commands' state
  std::condition_variable done_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::vector<Command*> idle_;
  std::exception_ptr broken_;  ///< the first error; on the communication thread only
};

}  // namespace triax::comm

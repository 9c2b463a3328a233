// Writes down every operation of the communicator that it wraps.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/ledger.h"

namespace triax::comm {

/// Whether the time spent in calls and waits is time that computation stood still (Exposed), or passes on the
/// communication thread (Hidden; then QueuedCommunicator records what its callers wait).
enum class CallTime { Exposed, Hidden };

class LedgerCommunicator final : public Communicator {
 public:
  LedgerCommunicator(std::unique_ptr<Communicator> inner, Ledger& ledger, CallTime call_time)
      : inner_(std::move(inner)), ledger_(&ledger), call_time_(call_time) {}
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
  Work send(Tensor t, int peer, int tag) override;
  Work recv(Tensor t, int peer, int tag) override;
  void barrier() override;
  Tensor allocate_symmetric(DType dtype, int64_t elements) override {
    return inner_->allocate_symmetric(dtype, elements);
  }

 private:
  class Entry;
  template <class Call>
  Work record(Operation op, int64_t payload_bytes, Call call);

  std::unique_ptr<Communicator> inner_;
  Ledger* ledger_;
  CallTime call_time_;
};

}  // namespace triax::comm

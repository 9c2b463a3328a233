// Writes down every operation of the communicator that it wraps.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "comm/call_record.h"
#include "comm/communicator.h"
#include "comm/ledger.h"

namespace triax::comm {

/// Whether the time spent in collectives is time that computation stood still (Exposed), or passes on the communication
/// thread (Hidden; then QueuedCommunicator records what its callers wait). Messages are always waited for by the
/// caller.
/// OnDevice: calls return before the device has begun; the communicator itself records seconds.
enum class CallTime { Exposed, Hidden, OnDevice };

class LedgerCommunicator final : public Communicator {
 public:
  /// `nodes`: of each member; empty: all on one.
  LedgerCommunicator(std::unique_ptr<Communicator> inner, Ledger& ledger, CallTime call_time,
                     std::vector<int> nodes = {}, const CallRecord& record = {})
      : inner_(std::move(inner)), ledger_(&ledger), call_time_(call_time), nodes_(std::move(nodes)), record_(record) {}
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
  /// What the running call has sent: all that `inner` counts, or what is known beforehand (a message).
  template <class Call>
  Work record(Operation op, int64_t payload_bytes, Call call, std::optional<SentBytes> known = std::nullopt);
  void enter(Operation op, int64_t payload_bytes, const std::optional<SentBytes>& sent, double busy_s);

  bool exposes(Operation op) const {
    return call_time_ == CallTime::Exposed || op == Operation::Send || op == Operation::Recv;
  }

  std::unique_ptr<Communicator> inner_;
  Ledger* ledger_;
  CallTime call_time_;
  std::vector<int> nodes_;
  CallRecord record_;
  std::atomic<int64_t> calls_{0};
};

}  // namespace triax::comm

#include "comm/ledger_comm.h"

#include "base/clock.h"

namespace triax::comm {

/// An operation still in flight when its call returned.
class LedgerCommunicator::Entry final : public Work::State {
 public:
  Entry(LedgerCommunicator& owner, Operation op, int64_t payload_bytes, const std::optional<SentBytes>& sent,
        double start_s, double call_s, int64_t number, Work work)
      : owner_(&owner),
        op_(op),
        number_(number),
        payload_bytes_(payload_bytes),
        sent_(sent),
        start_s_(start_s),
        exposed_s_(call_s),
        work_(std::move(work)) {}
  void wait() override {
    const Stopwatch watch;
    owner_->record_.begin(op_, number_);
    work_.wait();
    owner_->record_.end(op_, number_);
    exposed_s_ += watch.elapsed_s();
    finish();
  }
  bool test() override {
    if (!work_.test()) return false;
    finish();
    return true;
  }

 private:
  void finish() {
    if (recorded_) return;
    recorded_ = true;
    owner_->enter(op_, payload_bytes_, sent_, now_s() - start_s_);
    if (owner_->exposes(op_)) owner_->ledger_->record_exposed(owner_->name(), op_, exposed_s_);
  }
  LedgerCommunicator* owner_;
  Operation op_;
  int64_t number_;  ///< of the call
  int64_t payload_bytes_;
  std::optional<SentBytes> sent_;
  double start_s_;
  double exposed_s_;
  Work work_;
  bool recorded_ = false;
};

void LedgerCommunicator::enter(Operation op, int64_t payload_bytes, const std::optional<SentBytes>& sent,
                               double busy_s) {
  if (sent) {
    ledger_->record_counted(name(), op, payload_bytes, *sent, busy_s);
  } else {
    ledger_->record(name(), op, payload_bytes, sent_bytes(op, payload_bytes, size()), busy_s);
  }
}

template <class Call>
Work LedgerCommunicator::record(Operation op, int64_t payload_bytes, Call call, std::optional<SentBytes> known) {
  // A message is known beforehand, and its caller may not be the thread that makes the collectives.
  const SentBytes* counted = known ? nullptr : inner_->counted(op);
  const SentBytes before = counted != nullptr ? *counted : SentBytes{};
  const double start = now_s();
  const int64_t number = calls_.fetch_add(1, std::memory_order_relaxed) + 1;
  record_.begin(op, number);
  Work work = call();
  record_.end(op, number);
  const double call_s = now_s() - start;
  if (call_time_ == CallTime::OnDevice) {
    enter(op, payload_bytes, known, 0);
    return work;
  }
  // Communicators that count complete their calls before they return.
  if (counted != nullptr) known = *counted - before;
  if (!work.test()) {
    return Work(std::make_unique<Entry>(*this, op, payload_bytes, known, start, call_s, number, std::move(work)));
  }
  enter(op, payload_bytes, known, call_s);
  if (exposes(op)) ledger_->record_exposed(name(), op, call_s);
  return Work();
}

Work LedgerCommunicator::all_reduce(Tensor t, ReduceOp op) {
  return record(Operation::AllReduce, t.bytes(), [&] { return inner_->all_reduce(t, op); });
}

Work LedgerCommunicator::reduce(Tensor t, ReduceOp op, int root) {
  return record(Operation::Reduce, t.bytes(), [&] { return inner_->reduce(t, op, root); });
}

Work LedgerCommunicator::all_gather(Tensor in, Tensor out) {
  return record(Operation::AllGather, out.bytes(), [&] { return inner_->all_gather(in, out); });
}

Work LedgerCommunicator::all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) {
  return record(Operation::AllGather, out.bytes(), [&] { return inner_->all_gather_v(in, out, counts); });
}

Work LedgerCommunicator::reduce_scatter(Tensor in, Tensor out, ReduceOp op) {
  return record(Operation::ReduceScatter, in.bytes(), [&] { return inner_->reduce_scatter(in, out, op); });
}

Work LedgerCommunicator::reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) {
  return record(Operation::ReduceScatter, in.bytes(), [&] { return inner_->reduce_scatter_v(in, out, counts, op); });
}

Work LedgerCommunicator::broadcast(Tensor t, int root) {
  return record(Operation::Broadcast, t.bytes(), [&] { return inner_->broadcast(t, root); });
}

Work LedgerCommunicator::all_to_all(Tensor in, Tensor out) {
  return record(Operation::AllToAll, in.bytes(), [&] { return inner_->all_to_all(in, out); });
}

Work LedgerCommunicator::send(Tensor t, int peer, int tag) {
  const auto node = [this](int member) { return nodes_.empty() ? 0 : nodes_[static_cast<size_t>(member)]; };
  const bool across = size() > 1 && node(peer) != node(rank());
  return record(
      Operation::Send, t.bytes(), [&] { return inner_->send(t, peer, tag); },
      across ? SentBytes{0, t.bytes()} : SentBytes{t.bytes(), 0});
}

Work LedgerCommunicator::recv(Tensor t, int peer, int tag) {
  return record(
      Operation::Recv, t.bytes(), [&] { return inner_->recv(t, peer, tag); }, SentBytes{});
}

void LedgerCommunicator::barrier() {
  record(
      Operation::Barrier, 0,
      [&] {
        inner_->barrier();
        return Work();
      },
      SentBytes{})
      .wait();
}

}  // namespace triax::comm

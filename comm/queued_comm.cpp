#include "comm/queued_comm.h"

#include "base/clock.h"

namespace triax::comm {

/// An operation with its arguments; used again once waited for.
class QueuedCommunicator::Command final : public CommThread::Task {
 public:
  explicit Command(QueuedCommunicator& owner) : owner_(&owner) {}

  void run() noexcept override {
    std::exception_ptr& broken = owner_->broken_;
    try {
      if (!broken) call(*owner_->inner_).wait();
    } catch (...) {
      broken = std::current_exception();
    }
    // Notified under the lock: the waiter may free the condition variable as soon as it sees `done`.
    const std::lock_guard lock(owner_->mutex_);
    error = broken;
    done = true;
    owner_->done_.notify_all();
  }

  Operation op = Operation::Barrier;
  Tensor in, out;
  ReduceOp reduce_op = ReduceOp::Sum;
  int root = 0;
  std::vector<int64_t> counts;  ///< empty: equal pieces
  bool done = false;            ///< under the owner's mutex, as error
  std::exception_ptr error;

 private:
  Work call(Communicator& inner) {
    switch (op) {
      case Operation::AllReduce:
        return inner.all_reduce(in, reduce_op);
      case Operation::Reduce:
        return inner.reduce(in, reduce_op, root);
      case Operation::AllGather:
        return counts.empty() ? inner.all_gather(in, out) : inner.all_gather_v(in, out, counts);
      case Operation::ReduceScatter:
        return counts.empty() ? inner.reduce_scatter(in, out, reduce_op)
                              : inner.reduce_scatter_v(in, out, counts, reduce_op);
      case Operation::Broadcast:
        return inner.broadcast(in, root);
      case Operation::AllToAll:
        return inner.all_to_all(in, out);
      case Operation::Barrier:
        inner.barrier();
        return Work();
      case Operation::Send:
      case Operation::Recv:
        break;
    }
    ensure(false, "QueuedCommunicator: send and recv are not queued");
    return Work();
  }
  QueuedCommunicator* owner_;
};

/// What the caller holds.
class QueuedCommunicator::Pending final : public Work::State {
 public:
  Pending(QueuedCommunicator& owner, Command& command) : owner_(&owner), command_(&command) {}
  /// A command given up in flight (the job is being aborted) is never used again.
  ~Pending() override {
    if (test()) owner_->idle_.push_back(command_);
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  void wait() override {
    const Stopwatch watch;
    owner_->record_.begin(command_->op, 0);
    std::unique_lock lock(owner_->mutex_);
    owner_->done_.wait(lock, [this] { return command_->done; });
    lock.unlock();
    owner_->record_.end(command_->op, 0);
    owner_->ledger_->record_exposed(owner_->name(), command_->op, watch.elapsed_s());
    if (command_->error) std::rethrow_exception(command_->error);
  }

  bool test() override {
    const std::lock_guard lock(owner_->mutex_);
    return command_->done;
  }

 private:
  QueuedCommunicator* owner_;
  Command* command_;
};

QueuedCommunicator::QueuedCommunicator(std::unique_ptr<Communicator> inner, CommThread& thread, Ledger& ledger,
                                       const CallRecord& record)
    : inner_(std::move(inner)), thread_(&thread), ledger_(&ledger), record_(record) {}

QueuedCommunicator::~QueuedCommunicator() = default;

QueuedCommunicator::Command& QueuedCommunicator::next_command(Operation op) {
  if (idle_.empty()) {
    commands_.push_back(std::make_unique<Command>(*this));
    idle_.reserve(commands_.size());  // giving one back must not allocate
    idle_.push_back(commands_.back().get());
  }
  Command& command = *idle_.back();
  idle_.pop_back();
  command.op = op;
  command.in = command.out = Tensor();
  command.counts.clear();
  command.done = false;
  command.error = nullptr;
  return command;
}

Work QueuedCommunicator::post(Command& command) {
  auto pending = std::make_unique<Pending>(*this, command);
  thread_->post(command);
  return Work(std::move(pending));
}

Work QueuedCommunicator::all_reduce(Tensor t, ReduceOp op) {
  Command& command = next_command(Operation::AllReduce);
  command.in = t;
  command.reduce_op = op;
  return post(command);
}

Work QueuedCommunicator::reduce(Tensor t, ReduceOp op, int root) {
  Command& command = next_command(Operation::Reduce);
  command.in = t;
  command.reduce_op = op;
  command.root = root;
  return post(command);
}

Work QueuedCommunicator::all_gather(Tensor in, Tensor out) { return all_gather_v(in, out, {}); }

Work QueuedCommunicator::all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) {
  Command& command = next_command(Operation::AllGather);
  command.in = in;
  command.out = out;
  command.counts.assign(counts.begin(), counts.end());
  return post(command);
}

Work QueuedCommunicator::reduce_scatter(Tensor in, Tensor out, ReduceOp op) {
  return reduce_scatter_v(in, out, {}, op);
}

Work QueuedCommunicator::reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) {
  Command& command = next_command(Operation::ReduceScatter);
  command.in = in;
  command.out = out;
  command.counts.assign(counts.begin(), counts.end());
  command.reduce_op = op;
  return post(command);
}

Work QueuedCommunicator::broadcast(Tensor t, int root) {
  Command& command = next_command(Operation::Broadcast);
  command.in = t;
  command.root = root;
  return post(command);
}

Work QueuedCommunicator::all_to_all(Tensor in, Tensor out) {
  Command& command = next_command(Operation::AllToAll);
  command.in = in;
  command.out = out;
  return post(command);
}

void QueuedCommunicator::barrier() { post(next_command(Operation::Barrier)).wait(); }

}  // namespace triax::comm

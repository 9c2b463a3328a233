// Collectives and point-to-point on tensors, over one group of ranks. Implementations: MPI (with shared windows inside
// a host), NCCL later, phantom (moves nothing, counts). Decorators add a ledger, delays, faults.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/tensor.h"
#include "comm/ledger.h"

namespace triax::comm {

enum class ReduceOp : uint8_t { Sum, Max, Min };

/// An operation in flight. Move-only. The tensors belong to the operation until wait() returns. Every wait has the
/// communicator's deadline: past it, wait() throws PeerLost, which names group, operation, sequence number and rank.
class Work {
 public:
  class State {
   public:
    virtual ~State() = default;
    /// From a pool of this thread: a steady step allocates nothing on the heap.
    static void* operator new(size_t size_bytes);
    static void operator delete(void* state, size_t size_bytes) noexcept;
    /// Blocks (yielding) until done; throws PeerLost.
    virtual void wait() = 0;
    /// Progresses; true when done.
    virtual bool test() = 0;
  };
  Work() = default;  ///< already complete
  explicit Work(std::unique_ptr<State> state) : state_(std::move(state)) {}
  Work(Work&&) noexcept = default;
  Work& operator=(Work&&) noexcept = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  /// Waits if needed: dropping an operation in flight would free its buffers under it. Errors are logged.
  ~Work();
  void wait() {
    // Done with, even when it throws.
    if (const std::unique_ptr<State> state = std::move(state_)) state->wait();
  }
  bool test() { return !state_ || state_->test(); }

 private:
  std::unique_ptr<State> state_;
};

/// A peer did not answer within the deadline, or left.
class PeerLost : public RunTimeError {
 public:
  using RunTimeError::RunTimeError;
};

/// Tensors are contiguous. Floating dtypes reduce in at least fp32, inputs taken in rank order, so the result has the
/// same bits on all ranks and in every run; algorithms that sum in an order of their own (comm/algorithms/choice.h) do
/// so only on request, and keep to the latter. Operations of one communicator must be called in the same order by all
/// its ranks. A group of one rank completes everything at once and moves nothing. Calls may come from one thread only.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The axis or purpose: "tp", "pp", "dp", "embedding", "world", ...
  virtual const std::string& name() const = 0;

  /// t = op over ranks of t. Ring-equivalent bytes sent per rank: 2 (n-1)/n * bytes.
  virtual Work all_reduce(Tensor t, ReduceOp op) = 0;
  /// As all_reduce, but only root's t is overwritten.
  virtual Work reduce(Tensor t, ReduceOp op, int root) = 0;
  /// out = in of rank 0, 1, ... one after the other; out.numel() = n * in.numel(). Sent: (n-1)/n * out bytes.
  virtual Work all_gather(Tensor in, Tensor out) = 0;
  /// counts[r] = elements of rank r.
  virtual Work all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) = 0;
  /// out = this rank's piece of op over ranks of in; in.numel() = n * out.numel(). Sent: (n-1)/n * in bytes.
  virtual Work reduce_scatter(Tensor in, Tensor out, ReduceOp op) = 0;
  virtual Work reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) = 0;
  virtual Work broadcast(Tensor t, int root) = 0;
  /// Piece r of in goes to rank r; piece r of out comes from rank r.
  virtual Work all_to_all(Tensor in, Tensor out) = 0;
  /// Point to point; messages between a pair match by (tag, order). tag >= 0. send completes when t may be reused.
  virtual Work send(Tensor t, int peer, int tag) = 0;
  virtual Work recv(Tensor t, int peer, int tag) = 0;
  virtual void barrier() = 0;

  /// Memory from which this group's collectives are fastest (shared window inside one host); collective over the group,
  /// same size on every rank. Lives as long as the communicator. Other memory works too, only slower.
  virtual Tensor allocate_symmetric(DType dtype, int64_t elements) = 0;

  /// What all calls of `op` and its like have sent so far, counted at each send; null where nothing is counted and the
  /// ledger converts payloads instead. To be read on the thread that makes the calls.
  virtual const SentBytes* counted(Operation) const { return nullptr; }
};

}  // namespace triax::comm

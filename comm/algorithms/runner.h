// Carries a plan out over the sends and receives of a communicator, and counts the bytes of every send.
#pragma once

#include <vector>

#include "comm/algorithms/plan.h"
#include "comm/communicator.h"

namespace triax::comm {

/// Ranges travel in chunks, so that a sum takes its input from the cache while the next chunk is on its way. Sends are
/// waited for when their range is overwritten, or at the end.
class PlanRunner {
 public:
  static constexpr int64_t kChunkBytes = int64_t{256} << 10;

  /// `links` null: nothing moves and no tensor is touched, bytes are counted all the same (comm/phantom.h).
  PlanRunner(Communicator* links, PlanGroup group, MemoryProvider& memory);
  bool moves() const { return links_ != nullptr; }
  const PlanGroup& group() const { return group_; }
  /// Complete when it returns. `buffer`: contiguous vector that the plan was made for.
  void run(const Plan& plan, const Tensor& buffer, ReduceOp op);
  /// Bytes sent so far.
  const SentBytes& sent() const { return sent_; }

 private:
  struct Sending {
    Work work;
    int64_t begin, end;
  };
  void send(const Transfer& t, const Tensor& buffer);
  void receive(const Transfer& t, const Tensor& buffer);
  void receive_sum(const Transfer& t, const Tensor& buffer, ReduceOp op);
  void receive_input(const Transfer& t, const Tensor& buffer);
  void sum_inputs(const Transfer& t, const Tensor& buffer, ReduceOp op);
  void count(const Transfer& t, DType dtype);
  /// Waits for the sends of anything in [begin, end).
  void settle(int64_t begin, int64_t end);
  std::byte* scratch(int64_t bytes);
  int64_t chunk_elements(const Transfer& t, DType dtype) const;

  Communicator* links_;
  PlanGroup group_;
  Arena arena_;
  Buffer scratch_;
  std::vector<Sending> sending_;
  std::vector<Work> receiving_;
  std::vector<const std::byte*> sources_;
  SentBytes sent_;
};

}  // namespace triax::comm

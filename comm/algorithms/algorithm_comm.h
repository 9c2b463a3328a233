// Collectives by a chosen algorithm over point-to-point sends, beside the library's own and those through shared
// memory.
#pragma once

#include <memory>
#include <vector>

#include "comm/algorithms/runner.h"

namespace triax::comm {

/// all_reduce, reduce_scatter and all_gather follow the algorithm's plan (trees: all_reduce alone); everything else,
/// also the caller's own send and recv, goes to `usual`. Calls complete before they return. A reduce_scatter works on a
/// copy of its input, 16 MiB at a time; an all_reduce works in place.
class AlgorithmCommunicator final : public Communicator {
 public:
  /// `links`: a communicator of the same group for this object's messages alone; null: counts and moves nothing.
  AlgorithmCommunicator(std::unique_ptr<Communicator> usual, std::unique_ptr<Communicator> links, Algorithm algorithm,
                        SumOrder order, PlanGroup group, MemoryProvider& memory);
  int rank() const override { return usual_->rank(); }
  int size() const override { return usual_->size(); }
  const std::string& name() const override { return usual_->name(); }
  Work all_reduce(Tensor t, ReduceOp op) override;
  Work reduce(Tensor t, ReduceOp op, int root) override { return usual_->reduce(t, op, root); }
  Work all_gather(Tensor in, Tensor out) override;
  Work all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) override;
  Work reduce_scatter(Tensor in, Tensor out, ReduceOp op) override;
  Work reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) override;
  Work broadcast(Tensor t, int root) override { return usual_->broadcast(t, root); }
  Work all_to_all(Tensor in, Tensor out) override { return usual_->all_to_all(in, out); }
  Work send(Tensor t, int peer, int tag) override { return usual_->send(t, peer, tag); }
  Work recv(Tensor t, int peer, int tag) override { return usual_->recv(t, peer, tag); }
  void barrier() override { usual_->barrier(); }
  Tensor allocate_symmetric(DType dtype, int64_t elements) override {
    return usual_->allocate_symmetric(dtype, elements);
  }
  const SentBytes* counted(Operation op) const override;

 private:
  /// Plans are made once for each shape of call: a steady step makes none.
  struct Known {
    Operation op;
    std::vector<int64_t> counts;  ///< of the pieces; of an all_reduce: elements, elements of a step
    Plan plan;
  };
  const Plan& plan_for(Operation op, std::span<const int64_t> counts);
  bool has(Operation op) const;
  void gather_pieces(Tensor in, Tensor out, const Pieces& pieces);
  void scatter_pieces(Tensor in, Tensor out, const Pieces& pieces, ReduceOp op);
  void scatter_block(Tensor in, Tensor out, const Pieces& pieces, int64_t begin, int64_t chunk, ReduceOp op);
  Tensor work(DType dtype, int64_t elements);

  std::unique_ptr<Communicator> usual_;
  std::unique_ptr<Communicator> links_;
  Algorithm algorithm_;
  SumOrder order_;
  PlanRunner runner_;
  Arena arena_;
  Buffer work_;
  std::vector<Known> known_;
  std::vector<int64_t> counts_;
};

}  // namespace triax::comm

// A group of any size that moves nothing: one process can rehearse any rank of a large job.
#pragma once

#include "comm/wait.h"

namespace triax::comm {

/// Completes everything at once. Tensors are left as they are; recv leaves zeros.
class PhantomCommunicator final : public Communicator {
 public:
  PhantomCommunicator(GroupInfo group, MemoryProvider& memory) : group_(std::move(group)), arena_(memory) {}
  int rank() const override { return group_.rank; }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.name; }
  Work all_reduce(Tensor, ReduceOp) override { return Work(); }
  Work reduce(Tensor, ReduceOp, int) override { return Work(); }
  Work all_gather(Tensor, Tensor) override { return Work(); }
  Work all_gather_v(Tensor, Tensor, std::span<const int64_t>) override { return Work(); }
  Work reduce_scatter(Tensor, Tensor, ReduceOp) override { return Work(); }
  Work reduce_scatter_v(Tensor, Tensor, std::span<const int64_t>, ReduceOp) override { return Work(); }
  Work broadcast(Tensor, int) override { return Work(); }
  Work all_to_all(Tensor, Tensor) override { return Work(); }
  Work send(Tensor, int, int) override { return Work(); }
  Work recv(Tensor t, int peer, int tag) override;
  void barrier() override {}
  Tensor allocate_symmetric(DType dtype, int64_t elements) override;

 private:
  GroupInfo group_;
  Arena arena_;
  std::vector<Buffer> symmetric_;
};

}  // namespace triax::comm

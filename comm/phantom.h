// A group of any size that moves nothing: one process can rehearse any rank of a large job.
#pragma once

#include "comm/process_grid.h"
#include "comm/wait.h"

namespace triax::comm {

/// Completes everything at once. Silent peers: tensors are left as they are, recv leaves zeros. Echoing peers: gathers,
/// scatters and exchanges give what they would if every rank held what this one holds, sums are left as they are (a
/// single number gets a little from its peers), recv leaves small numbers of both signs in floating tensors; so
/// arithmetic on the results stays finite and no norm is 0.
class PhantomCommunicator final : public Communicator {
 public:
  PhantomCommunicator(GroupInfo group, MemoryProvider& memory, PhantomPeers peers = PhantomPeers::Silent)
      : group_(std::move(group)), arena_(memory), peers_(peers) {}
  int rank() const override { return group_.rank; }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.name; }
  Work all_reduce(Tensor t, ReduceOp op) override;
  Work reduce(Tensor, ReduceOp, int) override { return Work(); }
  Work all_gather(Tensor in, Tensor out) override;
  Work all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) override;
  Work reduce_scatter(Tensor in, Tensor out, ReduceOp) override;
  Work reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp) override;
  Work broadcast(Tensor, int) override { return Work(); }
  Work all_to_all(Tensor in, Tensor out) override;
  Work send(Tensor, int, int) override { return Work(); }
  Work recv(Tensor t, int peer, int tag) override;
  void barrier() override {}
  Tensor allocate_symmetric(DType dtype, int64_t elements) override;

 private:
  bool echoes() const { return peers_ == PhantomPeers::Echo; }
  GroupInfo group_;
  Arena arena_;
  PhantomPeers peers_;
  std::vector<Buffer> symmetric_;
};

}  // namespace triax::comm

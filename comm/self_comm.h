// A group of one: everything is complete at once, and nothing is sent.
#pragma once

#include "comm/wait.h"
#include "kernels/device.h"

namespace triax::comm {

/// Where in and out differ, out becomes a copy of in. send and recv have nobody to talk to: std::logic_error.
class SelfCommunicator final : public Communicator {
 public:
  /// device: whose memory the tensors lie in; null: the host's.
  SelfCommunicator(std::string name, MemoryProvider& memory, kernels::Device* device = nullptr)
      : name_(std::move(name)), device_(device), arena_(memory) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }
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
  void barrier() override {}
  Tensor allocate_symmetric(DType dtype, int64_t elements) override;

 private:
  Work copy_over(const Tensor& in, const Tensor& out);

  std::string name_;
  kernels::Device* device_;
  Arena arena_;
  std::vector<Buffer> symmetric_;
};

}  // namespace triax::comm

// Collectives of one group by NCCL, and messages between the stages of a pipeline.
#pragma once

#include <memory>
#include <vector>

#include "comm/cuda/nccl_link.h"

namespace triax::comm {

/// NCCL sums in an order of its own, the same in every run on the same ranks and GPUs.
class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(kernels::CudaDevice& device, std::unique_ptr<NcclLink> link);
  int rank() const override { return link_->group().info.rank; }
  int size() const override { return link_->group().size(); }
  const std::string& name() const override { return link_->group().info.name; }
  Work all_reduce(Tensor t, ReduceOp op) override;
  Work reduce(Tensor t, ReduceOp op, int root) override;
  Work all_gather(Tensor in, Tensor out) override;
  /// A broadcast of each piece, all in one go.
  Work all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) override;
  Work reduce_scatter(Tensor in, Tensor out, ReduceOp op) override;
  /// A reduction of each piece, all in one go.
  Work reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) override;
  Work broadcast(Tensor t, int root) override;
  Work all_to_all(Tensor in, Tensor out) override;
  /// In the order of the calls: tags play no part.
  Work send(Tensor t, int peer, int tag) override;
  Work recv(Tensor t, int peer, int tag) override;
  /// Waits on the host until all ranks' devices have come to it.
  void barrier() override;
  Tensor allocate_symmetric(DType dtype, int64_t elements) override;

 private:
  kernels::CudaDevice* device_;
  Arena arena_;
  Buffer token_;
  std::vector<Buffer> symmetric_;
  std::unique_ptr<NcclLink> link_;
};

/// send and recv alone, each lane on an NCCL communicator and a stream of its own.
class NcclMessages final : public Communicator {
 public:
  struct OwnLane {
    Lane lane;
    std::unique_ptr<NcclLink> link;
  };
  NcclMessages(DeviceGroup group, std::vector<OwnLane> lanes) : group_(std::move(group)), lanes_(std::move(lanes)) {}
  int rank() const override { return group_.info.rank; }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.info.name; }
  Work all_reduce(Tensor, ReduceOp) override { return refuse(); }
  Work reduce(Tensor, ReduceOp, int) override { return refuse(); }
  Work all_gather(Tensor, Tensor) override { return refuse(); }
  Work all_gather_v(Tensor, Tensor, std::span<const int64_t>) override { return refuse(); }
  Work reduce_scatter(Tensor, Tensor, ReduceOp) override { return refuse(); }
  Work reduce_scatter_v(Tensor, Tensor, std::span<const int64_t>, ReduceOp) override { return refuse(); }
  Work broadcast(Tensor, int) override { return refuse(); }
  Work all_to_all(Tensor, Tensor) override { return refuse(); }
  Work send(Tensor t, int peer, int tag) override;
  Work recv(Tensor t, int peer, int tag) override;
  void barrier() override { refuse(); }
  Tensor allocate_symmetric(DType, int64_t) override { return refuse(), Tensor(); }

 private:
  Work refuse() const;
  NcclLink& link_of(int from, int to, int tag);
  DeviceGroup group_;
  std::vector<OwnLane> lanes_;
};

}  // namespace triax::comm

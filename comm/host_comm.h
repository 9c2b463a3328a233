// Collectives of a group whose ranks share a host: every rank works on its slice of everybody's memory.
#pragma once

#include "comm/host_group.h"
#include "comm/host_messages.h"
#include "comm/pieces.h"

namespace triax::comm {

/// Small data travel with the announcement (one barrier). Tensors in HostMemory are read and written in place by all
/// (two barriers, no copy). Others pass through the staging buffers in chunks. All calls complete before they return;
/// every rank reduces its slice and the others take the result over, so all have the same bits.
class HostCommunicator final : public Communicator {
 public:
  /// Sets this rank's region aside and returns its offset. It is given back with `memory` only: a slower member may
  /// still look at it when a faster one is gone.
  static int64_t reserve_region(HostMemory& memory, int members);
  HostCommunicator(HostMemory& memory, const HostMembers& members, GroupInfo group, const EventWait& wait);
  int rank() const override { return group_.rank; }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.name; }

  Work all_reduce(Tensor t, ReduceOp op) override;
  Work reduce(Tensor t, ReduceOp op, int root) override;
  Work all_gather(Tensor in, Tensor out) override;
  Work all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) override;
  Work reduce_scatter(Tensor in, Tensor out, ReduceOp op) override;
  Work reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) override;
  Work broadcast(Tensor t, int root) override;
  Work all_to_all(Tensor in, Tensor out) override;
  Work send(Tensor t, int peer, int tag) override { return messages_.send(t, peer, tag); }
  Work recv(Tensor t, int peer, int tag) override { return messages_.recv(t, peer, tag); }
  void barrier() override;
  Tensor allocate_symmetric(DType dtype, int64_t elements) override;

 private:
  void reduce_to(Tensor t, ReduceOp op, int root);
  void reduce_in_place(Tensor t, ReduceOp op, int root);
  void reduce_staged(Tensor t, ReduceOp op, int root);
  void gather_pieces(Tensor in, Tensor out, const Pieces& pieces);
  void scatter_pieces(Tensor in, Tensor out, const Pieces& pieces, ReduceOp op);
  void scatter_staged(Tensor in, Tensor out, const Pieces& pieces, ReduceOp op);
  /// out = op over members of `count` elements at byte `offset` of source(member).
  template <class Source>
  void reduce_from(Source source, DType dtype, ReduceOp op, std::byte* out, int64_t count);
  bool all_in_windows() const;
  int stage_parity() { return static_cast<int>(chunks_++ & 1); }

  GroupInfo group_;
  HostGroup host_;
  HostMessages messages_;
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> destinations_;
  uint64_t chunks_ = 0;  ///< staged so far; the same on all members
};

}  // namespace triax::comm

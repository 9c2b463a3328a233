// Collectives between hosts, of non-blocking point-to-point messages alone, so that every wait has a deadline and every
// reduction takes its inputs in rank order.
#pragma once

#include "comm/mpi_group.h"
#include "comm/pieces.h"

namespace triax::comm {

/// all_reduce is a direct reduce-scatter (every rank gets its slice from all others: (n-1)/n of the bytes) followed by
/// a direct all-gather (as much again): what a ring sends, with fewer steps and sums in rank order. Calls complete
/// before they return; put a QueuedCommunicator around it to overlap.
class MpiCommunicator final : public MpiGroup {
 public:
  /// Collective over `comm`.
  MpiCommunicator(MpiComm comm, GroupInfo group, MemoryProvider& memory);

  Work all_reduce(Tensor t, ReduceOp op) override;
  Work reduce(Tensor t, ReduceOp op, int root) override;
  Work all_gather(Tensor in, Tensor out) override;
  Work all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) override;
  Work reduce_scatter(Tensor in, Tensor out, ReduceOp op) override;
  Work reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) override;
  Work broadcast(Tensor t, int root) override;
  Work all_to_all(Tensor in, Tensor out) override;
  void barrier() override;
  Tensor allocate_symmetric(DType dtype, int64_t elements) override;
  const SentBytes* counted(Operation) const override { return &sent_; }

 private:
  void start_operation(Operation op);
  void clear();
  void post_send(int peer, const std::byte* data, int64_t bytes);
  void post_recv(int peer, std::byte* data, int64_t bytes);
  /// Waits for all that was posted; RunTimeError when a peer sent another number of bytes.
  void complete();
  std::byte* scratch(int64_t bytes);

  void reduce_to(Tensor t, ReduceOp op, int root);
  void reduce_small(Tensor t, ReduceOp op, int root);
  void reduce_chunk(Tensor t, ReduceOp op, int root);
  void gather_pieces(Tensor in, Tensor out, const Pieces& pieces);
  void scatter_pieces(Tensor in, Tensor out, const Pieces& pieces, ReduceOp op);

  MpiComm collectives_;  ///< apart from send and recv
  Arena arena_;
  Buffer scratch_;
  std::vector<Buffer> symmetric_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;     ///< of each request
  std::vector<int> expected_;  ///< bytes that each request receives; -1 for a send
  std::vector<MPI_Status> statuses_;
  std::vector<const std::byte*> sources_;
  Operation current_ = Operation::Barrier;
  int64_t sequence_ = 0;
  SentBytes sent_;  ///< by collectives
};

}  // namespace triax::comm

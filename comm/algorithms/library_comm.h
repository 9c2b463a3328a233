// The MPI library's own collectives, for comparison with ours. Non-blocking calls and polling, so that every wait has a
// deadline. The ledger converts their bytes by the ring factors: what the library sends is its own affair.
#pragma once

#include <array>

#include "comm/mpi_group.h"

namespace triax::comm {

struct MpiOpPolicy {
  using type = MPI_Op;
  static type null() noexcept { return MPI_OP_NULL; }
  static void destroy(type op) noexcept { MPI_Op_free(&op); }
};
struct MpiDatatypePolicy {
  using type = MPI_Datatype;
  static type null() noexcept { return MPI_DATATYPE_NULL; }
  static void destroy(type datatype) noexcept { MPI_Type_free(&datatype); }
};

/// Sums in the library's order. bf16 and fp16 are added in fp32 and rounded after every addition; Max and Min keep a
/// NaN. Tensors of more than 2^31 - 1 elements: RunTimeError (MPI 3 counts are int). Calls complete before they return.
class LibraryCommunicator final : public MpiGroup {
 public:
  /// Collective over `comm`.
  LibraryCommunicator(MpiComm comm, GroupInfo group, MemoryProvider& memory);
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

 private:
  void complete(MPI_Request request, Operation op);
  MPI_Datatype type_of(DType dtype) const;
  MPI_Op op_of(DType dtype, ReduceOp op) const;
  /// MPI's count of a tensor's elements.
  int count_of(int64_t elements) const;

  MpiComm collectives_;  ///< apart from send and recv
  Handle<MpiDatatypePolicy> half_;
  std::array<std::array<Handle<MpiOpPolicy>, 3>, 6> ops_;  ///< [dtype][ReduceOp]; Sum of bf16 and fp16, Max, Min
  Arena arena_;
  std::vector<Buffer> symmetric_;
  std::vector<int> counts_, begins_;
  Buffer copy_;
  int64_t sequence_ = 0;
};

}  // namespace triax::comm

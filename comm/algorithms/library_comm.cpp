#include "comm/algorithms/library_comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "comm/copy_bytes.h"
#include "comm/mpi_check.h"
#include "comm/reduce_kernels.h"
#include "comm/tensor_bytes.h"

namespace triax::comm {
namespace {

constexpr std::array<DType, 6> kReducible{DType::Float64, DType::Float32, DType::BFloat16,
                                          DType::Float16, DType::Int32,   DType::Int64};

/// inout = in op inout, as MPI wants it.
template <DType dtype, ReduceOp op>
void combine(void* in, void* inout, int* count, MPI_Datatype*) {
  auto* to = static_cast<std::byte*>(inout);
  const std::array<const std::byte*, 2> sources{static_cast<const std::byte*>(in), to};
  reduce_buffers(dtype, op, sources, {&to, 1}, *count);
}

void make_op(MPI_User_function* function, Handle<MpiOpPolicy>& op) {
  constexpr int kCommutes = 1;
  TRIAX_MPI(MPI_Op_create(function, kCommutes, op.out()));
}

template <DType dtype>
void make_ops(std::array<Handle<MpiOpPolicy>, 3>& ops) {
  // MPI's own sums are as fast as it can; its Max and Min may drop a NaN.
  if (dtype == DType::BFloat16 || dtype == DType::Float16) make_op(combine<dtype, ReduceOp::Sum>, ops[0]);
  make_op(combine<dtype, ReduceOp::Max>, ops[1]);
  make_op(combine<dtype, ReduceOp::Min>, ops[2]);
}

}  // namespace

LibraryCommunicator::LibraryCommunicator(MpiComm comm, GroupInfo group, MemoryProvider& memory)
    : MpiGroup(std::move(comm), std::move(group)), collectives_(duplicate(messages_.get())), arena_(memory) {
  TRIAX_MPI(MPI_Type_contiguous(2, MPI_BYTE, half_.out()));
  MPI_Datatype half = half_.get();
  TRIAX_MPI(MPI_Type_commit(&half));
  make_ops<kReducible[0]>(ops_[0]);
  make_ops<kReducible[1]>(ops_[1]);
  make_ops<kReducible[2]>(ops_[2]);
  make_ops<kReducible[3]>(ops_[3]);
  make_ops<kReducible[4]>(ops_[4]);
  make_ops<kReducible[5]>(ops_[5]);
}

MPI_Datatype LibraryCommunicator::type_of(DType dtype) const {
  switch (dtype) {
    case DType::Float64:
      return MPI_DOUBLE;
    case DType::Float32:
      return MPI_FLOAT;
    case DType::Int32:
      return MPI_INT32_T;
    case DType::Int64:
      return MPI_INT64_T;
    case DType::BFloat16:
    case DType::Float16:
      return half_.get();
    default:
      return MPI_BYTE;
  }
}

MPI_Op LibraryCommunicator::op_of(DType dtype, ReduceOp op) const {
  const auto found = std::find(kReducible.begin(), kReducible.end(), dtype);
  ensure(found != kReducible.end(), "library collectives: no reductions of fp8, int8 and uint8");
  const auto& ops = ops_[static_cast<size_t>(found - kReducible.begin())];
  const MPI_Op own = ops[static_cast<size_t>(op)].get();
  return own == MPI_OP_NULL ? MPI_SUM : own;
}

int LibraryCommunicator::count_of(int64_t elements) const {
  if (elements <= std::numeric_limits<int>::max()) return static_cast<int>(elements);
  throw RunTimeError(
      fmt::format("group {}: the MPI library's collectives take at most {} elements, not {}; choose another "
                  "--collective-algorithm, or smaller buckets",
                  group_.name, std::numeric_limits<int>::max(), elements));
}

void LibraryCommunicator::complete(MPI_Request request, Operation op) {
  wait_all({&request, 1}, {}, group_, op, ++sequence_);
}

Work LibraryCommunicator::all_reduce(Tensor t, ReduceOp op) {
  ensure(t.contiguous(), "all_reduce: contiguous tensor");
  MPI_Request request = MPI_REQUEST_NULL;
  TRIAX_MPI(MPI_Iallreduce(MPI_IN_PLACE, t.data(), count_of(t.numel()), type_of(t.dtype()), op_of(t.dtype(), op),
                           collectives_.get(), &request));
  complete(request, Operation::AllReduce);
  return Work();
}

Work LibraryCommunicator::reduce(Tensor t, ReduceOp op, int root) {
  ensure(t.contiguous() && root >= 0 && root < size(), "reduce: contiguous tensor, root of the group");
  MPI_Request request = MPI_REQUEST_NULL;
  const bool is_root = rank() == root;
  TRIAX_MPI(MPI_Ireduce(is_root ? MPI_IN_PLACE : t.data(), is_root ? t.data() : nullptr, count_of(t.numel()),
                        type_of(t.dtype()), op_of(t.dtype(), op), root, collectives_.get(), &request));
  complete(request, Operation::Reduce);
  return Work();
}

Work LibraryCommunicator::all_gather(Tensor in, Tensor out) {
  std::vector<int64_t> counts(static_cast<size_t>(size()), in.numel());
  return all_gather_v(in, out, counts);
}

Work LibraryCommunicator::all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) {
  ensure(in.contiguous() && out.contiguous() && in.dtype() == out.dtype() &&
             static_cast<int>(counts.size()) == size() && in.numel() == counts[static_cast<size_t>(rank())],
         "all_gather: out holds the pieces of all ranks, contiguous and of one dtype");
  const int64_t unit = width(in.dtype());
  const int64_t scale = type_of(in.dtype()) == MPI_BYTE ? unit : 1;
  counts_.clear();
  begins_.clear();
  int64_t begin = 0;
  for (const int64_t count : counts) {
    counts_.push_back(count_of(count * scale));
    begins_.push_back(count_of(begin * scale));
    begin += count;
  }
  ensure(begin == out.numel(), "all_gather: out holds the pieces of all ranks");
  auto* own = bytes_of(out) + begins_[static_cast<size_t>(rank())] / scale * unit;
  if (in.data() != own) copy_bytes(own, static_cast<const std::byte*>(in.data()), in.bytes());
  MPI_Request request = MPI_REQUEST_NULL;
  TRIAX_MPI(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out.data(), counts_.data(), begins_.data(),
                            type_of(in.dtype()), collectives_.get(), &request));
  complete(request, Operation::AllGather);
  return Work();
}

Work LibraryCommunicator::reduce_scatter(Tensor in, Tensor out, ReduceOp op) {
  std::vector<int64_t> counts(static_cast<size_t>(size()), out.numel());
  return reduce_scatter_v(in, out, counts, op);
}

Work LibraryCommunicator::reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) {
  ensure(in.contiguous() && out.contiguous() && in.dtype() == out.dtype() &&
             static_cast<int>(counts.size()) == size() && out.numel() == counts[static_cast<size_t>(rank())],
         "reduce_scatter: in holds the pieces of all ranks, contiguous and of one dtype");
  counts_.clear();
  for (const int64_t count : counts) counts_.push_back(count_of(count));
  const auto* first = static_cast<const std::byte*>(in.data());
  auto* to = bytes_of(out);
  // MPI's buffers must not overlap.
  const bool overlapping = to < first + in.bytes() && first < to + out.bytes();
  if (overlapping && static_cast<int64_t>(copy_.size_bytes()) < out.bytes()) {
    copy_.reset();
    copy_ = arena_.allocate(static_cast<size_t>(out.bytes()), MemoryCategory::Communication);
  }
  auto* sum = overlapping && out.bytes() > 0 ? static_cast<std::byte*>(copy_.data()) : to;
  MPI_Request request = MPI_REQUEST_NULL;
  TRIAX_MPI(MPI_Ireduce_scatter(in.data(), sum, counts_.data(), type_of(in.dtype()), op_of(in.dtype(), op),
                                collectives_.get(), &request));
  complete(request, Operation::ReduceScatter);
  copy_bytes(to, sum, out.bytes());
  return Work();
}

Work LibraryCommunicator::broadcast(Tensor t, int root) {
  ensure(t.contiguous() && root >= 0 && root < size(), "broadcast: contiguous tensor, root of the group");
  MPI_Request request = MPI_REQUEST_NULL;
  const int64_t scale = type_of(t.dtype()) == MPI_BYTE ? width(t.dtype()) : 1;
  TRIAX_MPI(MPI_Ibcast(t.data(), count_of(t.numel() * scale), type_of(t.dtype()), root, collectives_.get(), &request));
  complete(request, Operation::Broadcast);
  return Work();
}

Work LibraryCommunicator::all_to_all(Tensor in, Tensor out) {
  ensure(in.contiguous() && out.contiguous() && in.dtype() == out.dtype() && in.numel() == out.numel() &&
             in.numel() % size() == 0,
         "all_to_all: in and out alike, contiguous, cut into equal pieces");
  const auto* first = static_cast<const std::byte*>(in.data());
  auto* to = bytes_of(out);
  const bool overlapping = to < first + in.bytes() && first < to + out.bytes();
  const int64_t scale = type_of(in.dtype()) == MPI_BYTE ? width(in.dtype()) : 1;
  const int count = count_of(in.numel() / size() * scale);
  if (overlapping && in.data() != out.data()) ensure(false, "all_to_all: in and out overlap in part");
  MPI_Request request = MPI_REQUEST_NULL;
  TRIAX_MPI(MPI_Ialltoall(overlapping ? MPI_IN_PLACE : in.data(), count, type_of(in.dtype()), out.data(), count,
                          type_of(in.dtype()), collectives_.get(), &request));
  complete(request, Operation::AllToAll);
  return Work();
}

void LibraryCommunicator::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  TRIAX_MPI(MPI_Ibarrier(collectives_.get(), &request));
  complete(request, Operation::Barrier);
}

Tensor LibraryCommunicator::allocate_symmetric(DType dtype, int64_t elements) {
  symmetric_.push_back(arena_.allocate(dtype, elements, MemoryCategory::Communication));
  return symmetric_.back().view(dtype, {elements});
}

}  // namespace triax::comm

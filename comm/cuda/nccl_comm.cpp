#include "comm/cuda/nccl_comm.h"

#include "comm/cuda/nccl_check.h"
#include "comm/tensor_bytes.h"

namespace triax::comm {
namespace {

size_t count(const Tensor& t) { return static_cast<size_t>(t.numel()); }

void check_pair(const char* operation, const Tensor& in, const Tensor& out) {
  if (!in.contiguous() || !out.contiguous() || in.dtype() != out.dtype()) {
    ensure(false, std::string(operation) + ": in and out contiguous and of one dtype");
  }
}

/// Every call between start and end is one operation for NCCL.
template <class Calls>
ncclResult_t grouped(Calls calls) {
  TRIAX_NCCL(ncclGroupStart());
  calls();
  const ncclResult_t status = ncclGroupEnd();
  return status;
}

/// Within a group a call only notes the operation.
void noted(ncclResult_t status, const char* call) {
  if (status != ncclInProgress) nccl_check(status, call, __FILE__, __LINE__);
}

}  // namespace

NcclCommunicator::NcclCommunicator(kernels::CudaDevice& device, std::unique_ptr<NcclLink> link)
    : device_(&device), arena_(device.memory()), link_(std::move(link)) {}

Work NcclCommunicator::all_reduce(Tensor t, ReduceOp op) {
  check_pair("all_reduce", t, t);
  return link_->run(Operation::AllReduce, [&](ncclComm_t comm, cudaStream_t stream) {
    const ncclResult_t status =
        ncclAllReduce(t.data(), t.data(), count(t), nccl_type(t.dtype()), nccl_op(op), comm, stream);
    return status;
  });
}

Work NcclCommunicator::reduce(Tensor t, ReduceOp op, int root) {
  check_pair("reduce", t, t);
  return link_->run(Operation::Reduce, [&](ncclComm_t comm, cudaStream_t stream) {
    const ncclResult_t status =
        ncclReduce(t.data(), t.data(), count(t), nccl_type(t.dtype()), nccl_op(op), root, comm, stream);
    return status;
  });
}

Work NcclCommunicator::all_gather(Tensor in, Tensor out) {
  check_pair("all_gather", in, out);
  ensure(out.numel() == in.numel() * size(), "all_gather: out holds the pieces of all ranks");
  return link_->run(Operation::AllGather, [&](ncclComm_t comm, cudaStream_t stream) {
    const ncclResult_t status = ncclAllGather(in.data(), out.data(), count(in), nccl_type(in.dtype()), comm, stream);
    return status;
  });
}

Work NcclCommunicator::all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) {
  check_pair("all_gather", in, out);
  ensure(static_cast<int>(counts.size()) == size() && in.numel() == counts[static_cast<size_t>(rank())],
         "all_gather: one count for each rank");
  return link_->run(Operation::AllGather, [&](ncclComm_t comm, cudaStream_t stream) {
    return grouped([&] {
      int64_t begin = 0;
      for (int r = 0; r < size(); ++r) {
        const int64_t n = counts[static_cast<size_t>(r)];
        const ncclResult_t status = ncclBroadcast(r == rank() ? in.data() : bytes_at(out, begin), bytes_at(out, begin),
                                                  static_cast<size_t>(n), nccl_type(in.dtype()), r, comm, stream);
        noted(status, "ncclBroadcast");
        begin += n;
      }
    });
  });
}

Work NcclCommunicator::reduce_scatter(Tensor in, Tensor out, ReduceOp op) {
  check_pair("reduce_scatter", in, out);
  ensure(in.numel() == out.numel() * size(), "reduce_scatter: in holds the pieces of all ranks");
  return link_->run(Operation::ReduceScatter, [&](ncclComm_t comm, cudaStream_t stream) {
    const ncclResult_t status =
        ncclReduceScatter(in.data(), out.data(), count(out), nccl_type(in.dtype()), nccl_op(op), comm, stream);
    return status;
  });
}

Work NcclCommunicator::reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) {
  check_pair("reduce_scatter", in, out);
  ensure(static_cast<int>(counts.size()) == size() && out.numel() == counts[static_cast<size_t>(rank())],
         "reduce_scatter: one count for each rank");
  return link_->run(Operation::ReduceScatter, [&](ncclComm_t comm, cudaStream_t stream) {
    return grouped([&] {
      int64_t begin = 0;
      for (int r = 0; r < size(); ++r) {
        const int64_t n = counts[static_cast<size_t>(r)];
        void* const to = r == rank() ? out.data() : bytes_at(in, begin);
        const ncclResult_t status = ncclReduce(bytes_at(in, begin), to, static_cast<size_t>(n), nccl_type(in.dtype()),
                                               nccl_op(op), r, comm, stream);
        noted(status, "ncclReduce");
        begin += n;
      }
    });
  });
}

Work NcclCommunicator::broadcast(Tensor t, int root) {
  check_pair("broadcast", t, t);
  return link_->run(Operation::Broadcast, [&](ncclComm_t comm, cudaStream_t stream) {
    const ncclResult_t status = ncclBroadcast(t.data(), t.data(), count(t), nccl_type(t.dtype()), root, comm, stream);
    return status;
  });
}

Work NcclCommunicator::all_to_all(Tensor in, Tensor out) {
  check_pair("all_to_all", in, out);
  ensure(in.numel() == out.numel() && in.numel() % size() == 0 && in.data() != out.data(),
         "all_to_all: in and out alike, apart, cut into equal pieces");
  const int64_t piece = in.numel() / size();
  return link_->run(Operation::AllToAll, [&](ncclComm_t comm, cudaStream_t stream) {
    return grouped([&] {
      for (int r = 0; r < size(); ++r) {
        const auto n = static_cast<size_t>(piece);
        ncclResult_t status = ncclSend(bytes_at(in, r * piece), n, nccl_type(in.dtype()), r, comm, stream);
        noted(status, "ncclSend");
        status = ncclRecv(bytes_at(out, r * piece), n, nccl_type(in.dtype()), r, comm, stream);
        noted(status, "ncclRecv");
      }
    });
  });
}

Work NcclCommunicator::send(Tensor t, int peer, int) {
  check_pair("send", t, t);
  return link_->run(Operation::Send, [&](ncclComm_t comm, cudaStream_t stream) {
    const ncclResult_t status = ncclSend(t.data(), count(t), nccl_type(t.dtype()), peer, comm, stream);
    return status;
  });
}

Work NcclCommunicator::recv(Tensor t, int peer, int) {
  check_pair("recv", t, t);
  return link_->run(Operation::Recv, [&](ncclComm_t comm, cudaStream_t stream) {
    const ncclResult_t status = ncclRecv(t.data(), count(t), nccl_type(t.dtype()), peer, comm, stream);
    return status;
  });
}

void NcclCommunicator::barrier() {
  if (!token_) token_ = arena_.allocate(DType::Float32, 1, MemoryCategory::Communication);
  const Tensor token = token_.view(DType::Float32, {1});
  device_->fill(token, 0);
  all_reduce(token, ReduceOp::Sum).wait();
  device_->synchronize();
}

Tensor NcclCommunicator::allocate_symmetric(DType dtype, int64_t elements) {
  symmetric_.push_back(arena_.allocate(dtype, elements, MemoryCategory::Communication));
  return symmetric_.back().view(dtype, {elements});
}

// ---- Messages -------------------------------------------------------------------------------------------------------

Work NcclMessages::refuse() const {
  ensure(false, "group " + group_.info.name + " carries messages only: ProcessGrid::host() has its collectives");
  return Work();
}

NcclLink& NcclMessages::link_of(int from, int to, int tag) {
  for (OwnLane& own : lanes_) {
    if (own.lane.from == from && own.lane.to == to && own.lane.parity == tag % 2) return *own.link;
  }
  ensure(false, "group " + group_.info.name + ": messages go to neighbours only");
  return *lanes_.front().link;
}

Work NcclMessages::send(Tensor t, int peer, int tag) {
  check_pair("send", t, t);
  // A lane has two ranks: its sender is 0.
  return link_of(rank(), peer, tag).run(Operation::Send, [&](ncclComm_t comm, cudaStream_t stream) {
    const ncclResult_t status = ncclSend(t.data(), count(t), nccl_type(t.dtype()), 1, comm, stream);
    return status;
  });
}

Work NcclMessages::recv(Tensor t, int peer, int tag) {
  check_pair("recv", t, t);
  return link_of(peer, rank(), tag).run(Operation::Recv, [&](ncclComm_t comm, cudaStream_t stream) {
    const ncclResult_t status = ncclRecv(t.data(), count(t), nccl_type(t.dtype()), 0, comm, stream);
    return status;
  });
}

}  // namespace triax::comm

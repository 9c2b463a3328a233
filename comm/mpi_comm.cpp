#include "comm/mpi_comm.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/copy_bytes.h"
#include "comm/mpi_check.h"
#include "comm/reduce_kernels.h"
#include "comm/tensor_bytes.h"

namespace triax::comm {
namespace {

constexpr int64_t kSmallBytes = 4096;                 // up to here everybody sends all to all
constexpr int kSmallRanks = 16;                       // ... in groups of at most this size
constexpr int64_t kScratchBytes = int64_t{16} << 20;  // of the inputs of one reduction step

}  // namespace

MpiCommunicator::MpiCommunicator(MpiComm comm, GroupInfo group, MemoryProvider& memory)
    : MpiGroup(std::move(comm), std::move(group)), collectives_(duplicate(messages_.get())), arena_(memory) {}

// ---- Messages -------------------------------------------------------------------------------------------------------

void MpiCommunicator::start_operation(Operation op) {
  current_ = op;
  ++sequence_;
  clear();
}

void MpiCommunicator::clear() {
  requests_.clear();
  peers_.clear();
  expected_.clear();
}

void MpiCommunicator::post_send(int peer, const std::byte* data, int64_t bytes) {
  (group_.node(peer) == group_.node(rank()) ? sent_.inside : sent_.across) += bytes;
  for (int64_t at = 0; at < bytes; at += kMessageBytes) {
    requests_.push_back(MPI_REQUEST_NULL);
    peers_.push_back(peer);
    expected_.push_back(-1);
    TRIAX_MPI(MPI_Isend(data + at, static_cast<int>(std::min(bytes - at, kMessageBytes)), MPI_BYTE, peer, 0,
                        collectives_.get(), &requests_.back()));
  }
}

void MpiCommunicator::post_recv(int peer, std::byte* data, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kMessageBytes) {
    const int count = static_cast<int>(std::min(bytes - at, kMessageBytes));
    requests_.push_back(MPI_REQUEST_NULL);
    peers_.push_back(peer);
    expected_.push_back(count);
    TRIAX_MPI(MPI_Irecv(data + at, count, MPI_BYTE, peer, 0, collectives_.get(), &requests_.back()));
  }
}

void MpiCommunicator::complete() {
  statuses_.resize(requests_.size());
  wait_all(requests_, peers_, group_, current_, sequence_, statuses_);
  for (size_t i = 0; i < expected_.size(); ++i) {
    if (expected_[i] < 0) continue;
    int received = 0;
    TRIAX_MPI(MPI_Get_count(&statuses_[i], MPI_BYTE, &received));
    if (received == expected_[i]) continue;
    throw RunTimeError(
        fmt::format("group {} {} #{}: rank {} expects {} bytes of rank {}, but got {}: their calls differ", group_.name,
                    name_of(current_), sequence_, group_.rank, expected_[i], peers_[i], received));
  }
  clear();
}

std::byte* MpiCommunicator::scratch(int64_t bytes) {
  if (static_cast<int64_t>(scratch_.size_bytes()) < bytes) {
    scratch_.reset();
    scratch_ = arena_.allocate(static_cast<size_t>(bytes), MemoryCategory::Communication);
  }
  return static_cast<std::byte*>(scratch_.data());
}

// ---- all_reduce, reduce ---------------------------------------------------------------------------------------------

Work MpiCommunicator::all_reduce(Tensor t, ReduceOp op) {
  start_operation(Operation::AllReduce);
  reduce_to(t, op, kEveryRank);
  return Work();
}

Work MpiCommunicator::reduce(Tensor t, ReduceOp op, int root) {
  ensure(root >= 0 && root < size(), "reduce: root outside of the group");
  start_operation(Operation::Reduce);
  reduce_to(t, op, root);
  return Work();
}

void MpiCommunicator::reduce_to(Tensor t, ReduceOp op, int root) {
  ensure(t.contiguous(), "all_reduce: contiguous tensor");
  if (t.bytes() <= kSmallBytes && size() <= kSmallRanks) {
    reduce_small(t, op, root);
    return;
  }
  const Tensor flat = t.flat();
  const int64_t chunk = kScratchBytes / width(t.dtype());
  for (int64_t begin = 0; begin < flat.numel(); begin += chunk) {
    reduce_chunk(flat.range(begin, std::min(flat.numel(), begin + chunk)), op, root);
  }
}

void MpiCommunicator::reduce_small(Tensor t, ReduceOp op, int root) {
  const int64_t bytes = t.bytes();
  std::byte* inputs = scratch(bytes * size());
  const bool receives = root == kEveryRank || root == rank();
  copy_bytes(inputs + rank() * bytes, bytes_of(t), bytes);
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (receives) post_recv(r, inputs + r * bytes, bytes);
    if (root == kEveryRank || root == r) post_send(r, inputs + rank() * bytes, bytes);
  }
  complete();
  if (!receives || bytes == 0) return;
  sources_.clear();
  for (int r = 0; r < size(); ++r) sources_.push_back(inputs + r * bytes);
  std::byte* out = bytes_of(t);
  reduce_buffers(t.dtype(), op, sources_, {&out, 1}, t.numel());
}

void MpiCommunicator::reduce_chunk(Tensor t, ReduceOp op, int root) {
  const int64_t unit = width(t.dtype());
  const auto slice = [&](int r) { return even_slice(t.numel(), r, size()); };
  const auto data = [&](int r) { return bytes_of(t) + slice(r).begin * unit; };
  const auto bytes = [&](int r) { return slice(r).size() * unit; };
  const int64_t own_bytes = bytes(rank());
  std::byte* inputs = scratch(std::max<int64_t>(own_bytes * size(), 1));
  sources_.clear();
  for (int r = 0; r < size(); ++r) {
    sources_.push_back(r == rank() ? data(r) : inputs + r * own_bytes);
    if (r == rank()) continue;
    post_recv(r, inputs + r * own_bytes, own_bytes);
    post_send(r, data(r), bytes(r));
  }
  complete();
  // Not the root: the sum must not overwrite t, so it goes over this rank's own input in the scratch.
  const bool keeps = root == kEveryRank || root == rank();
  std::byte* sum = keeps ? data(rank()) : inputs + rank() * own_bytes;
  reduce_buffers(t.dtype(), op, sources_, {&sum, 1}, slice(rank()).size());
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (keeps) post_recv(r, data(r), bytes(r));
    if (root == kEveryRank || root == r) post_send(r, sum, own_bytes);
  }
  complete();
}

// ---- all_gather, reduce_scatter -------------------------------------------------------------------------------------

Work MpiCommunicator::all_gather(Tensor in, Tensor out) {
  gather_pieces(in, out, Pieces::even(in.numel(), size()));
  return Work();
}

Work MpiCommunicator::all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) {
  gather_pieces(in, out, Pieces::of(counts));
  return Work();
}

void MpiCommunicator::gather_pieces(Tensor in, Tensor out, const Pieces& pieces) {
  ensure(in.contiguous() && out.contiguous() && in.dtype() == out.dtype() && pieces.ranks() == size() &&
             in.numel() == pieces.count(rank()) && out.numel() == pieces.total(),
         "all_gather: out holds the pieces of all ranks, contiguous and of one dtype");
  start_operation(Operation::AllGather);
  const int64_t unit = width(in.dtype());
  for (int i = 1; i < size(); ++i) {
    const int r = (rank() + i) % size();
    post_recv(r, bytes_of(out) + pieces.begin(r) * unit, pieces.count(r) * unit);
    post_send(r, bytes_of(in), in.bytes());
  }
  copy_bytes(bytes_of(out) + pieces.begin(rank()) * unit, bytes_of(in), in.bytes());
  complete();
}

Work MpiCommunicator::reduce_scatter(Tensor in, Tensor out, ReduceOp op) {
  scatter_pieces(in, out, Pieces::even(out.numel(), size()), op);
  return Work();
}

Work MpiCommunicator::reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) {
  scatter_pieces(in, out, Pieces::of(counts), op);
  return Work();
}

void MpiCommunicator::scatter_pieces(Tensor in, Tensor out, const Pieces& pieces, ReduceOp op) {
  ensure(in.contiguous() && out.contiguous() && in.dtype() == out.dtype() && pieces.ranks() == size() &&
             out.numel() == pieces.count(rank()) && in.numel() == pieces.total(),
         "reduce_scatter: in holds the pieces of all ranks, contiguous and of one dtype");
  start_operation(Operation::ReduceScatter);
  const int64_t unit = width(in.dtype());
  const int64_t chunk = std::max<int64_t>(kScratchBytes / unit / size(), 1);  // elements of each piece
  for (int64_t begin = 0; begin < pieces.largest(); begin += chunk) {
    const auto count = [&](int r) { return std::clamp<int64_t>(pieces.count(r) - begin, 0, chunk); };
    const auto data = [&](int r) { return bytes_of(in) + (pieces.begin(r) + begin) * unit; };
    const int64_t own_bytes = count(rank()) * unit;
    std::byte* inputs = scratch(std::max<int64_t>(own_bytes * size(), 1));
    sources_.clear();
    for (int r = 0; r < size(); ++r) {
      sources_.push_back(r == rank() ? data(r) : inputs + r * own_bytes);
      if (r == rank()) continue;
      post_recv(r, inputs + r * own_bytes, own_bytes);
      post_send(r, data(r), count(r) * unit);
    }
    complete();
    std::byte* sum = bytes_of(out) + begin * unit;
    reduce_buffers(in.dtype(), op, sources_, {&sum, 1}, count(rank()));
  }
}

// ---- broadcast, all_to_all, barrier ---------------------------------------------------------------------------------

Work MpiCommunicator::broadcast(Tensor t, int root) {
  ensure(t.contiguous() && root >= 0 && root < size(), "broadcast: contiguous tensor, root of the group");
  start_operation(Operation::Broadcast);
  // Binomial tree: counted from the root, rank v receives from v minus its lowest bit.
  const int v = (rank() - root + size()) % size();
  const auto member = [&](int virtual_rank) { return (virtual_rank + root) % size(); };
  int bit = 1;
  while (bit < size() && (v & bit) == 0) bit <<= 1;
  if (v != 0) {
    post_recv(member(v - bit), bytes_of(t), t.bytes());
    complete();
  }
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (v + bit < size()) post_send(member(v + bit), bytes_of(t), t.bytes());
  }
  complete();
  return Work();
}

Work MpiCommunicator::all_to_all(Tensor in, Tensor out) {
  ensure(in.contiguous() && out.contiguous() && in.dtype() == out.dtype() && in.numel() == out.numel() &&
             in.numel() % size() == 0,
         "all_to_all: in and out alike, contiguous, cut into equal pieces");
  start_operation(Operation::AllToAll);
  const int64_t piece = in.bytes() / size();
  const bool overlapping = bytes_of(in) < bytes_of(out) + out.bytes() && bytes_of(out) < bytes_of(in) + in.bytes();
  const std::byte* from = bytes_of(in);
  if (overlapping) {
    std::byte* copy = scratch(in.bytes());
    copy_bytes(copy, from, in.bytes());
    from = copy;
  }
  for (int i = 1; i < size(); ++i) {
    const int r = (rank() + i) % size();
    post_recv(r, bytes_of(out) + r * piece, piece);
    post_send(r, from + r * piece, piece);
  }
  copy_bytes(bytes_of(out) + rank() * piece, from + rank() * piece, piece);
  complete();
  return Work();
}

void MpiCommunicator::barrier() {
  start_operation(Operation::Barrier);
  requests_.push_back(MPI_REQUEST_NULL);
  TRIAX_MPI(MPI_Ibarrier(collectives_.get(), &requests_.back()));
  complete();
}

Tensor MpiCommunicator::allocate_symmetric(DType dtype, int64_t elements) {
  symmetric_.push_back(arena_.allocate(dtype, elements, MemoryCategory::Communication));
  return symmetric_.back().view(dtype, {elements});
}

}  // namespace triax::comm

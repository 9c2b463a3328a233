#include "comm/host_comm.h"

#include <algorithm>

#include "comm/copy_bytes.h"
#include "comm/reduce_kernels.h"
#include "comm/tensor_bytes.h"

namespace triax::comm {
namespace {

bool overlap(const Tensor& a, const Tensor& b) {
  return bytes_of(a) < bytes_of(b) + b.bytes() && bytes_of(b) < bytes_of(a) + a.bytes();
}

/// The messages' part of a region lies behind the collectives'.
int64_t messages_offset(int members) { return (HostGroup::region_bytes(members) + 63) / 64 * 64; }

HostMembers shifted(HostMembers members, int64_t offset) {
  for (int64_t& region : members.regions) region += offset;
  return members;
}

}  // namespace

int64_t HostCommunicator::reserve_region(HostMemory& memory, int members) {
  const int64_t bytes = messages_offset(members) + HostMessages::region_bytes(members);
  return memory.offset_of(memory.allocate_zeroed(bytes), bytes);
}

HostCommunicator::HostCommunicator(HostMemory& memory, const HostMembers& members, GroupInfo group,
                                   const EventWait& wait)
    : group_(std::move(group)),
      host_(memory, members, group_, wait),
      messages_(memory, shifted(members, messages_offset(group_.size())), group_, wait) {}

bool HostCommunicator::all_in_windows() const {
  for (int r = 0; r < size(); ++r) {
    if (host_.announcement(r).in_offset < 0) return false;
  }
  return true;
}

template <class Source>
void HostCommunicator::reduce_from(Source source, DType dtype, ReduceOp op, std::byte* out, int64_t count) {
  sources_.clear();
  for (int r = 0; r < size(); ++r) sources_.push_back(source(r));
  reduce_buffers(dtype, op, sources_, {&out, 1}, count);
}

// ---- all_reduce, reduce ---------------------------------------------------------------------------------------------

Work HostCommunicator::all_reduce(Tensor t, ReduceOp op) {
  reduce_to(t, op, kEveryRank);
  return Work();
}

Work HostCommunicator::reduce(Tensor t, ReduceOp op, int root) {
  ensure(root >= 0 && root < size(), "reduce: root outside of the group");
  reduce_to(t, op, root);
  return Work();
}

void HostCommunicator::reduce_to(Tensor t, ReduceOp op, int root) {
  ensure(t.contiguous(), "all_reduce: contiguous tensor");
  const int64_t bytes = t.bytes();
  const bool is_inline = bytes <= HostGroup::kInlineBytes;
  Announcement mine{root == kEveryRank ? Operation::AllReduce : Operation::Reduce, t.dtype(), op, root, t.numel()};
  if (is_inline) {
    copy_bytes(host_.next_inline_data(), bytes_of(t), bytes);
  } else {
    mine.in_offset = host_.offset_of(t.data(), bytes);
  }
  host_.meet(mine);
  if (is_inline) {
    // Everyone adds up everything in the same order.
    if (root != kEveryRank && root != rank()) return;
    reduce_from([&](int r) { return host_.inline_data(r); }, t.dtype(), op, bytes_of(t), t.numel());
  } else if (all_in_windows()) {
    reduce_in_place(t, op, root);
  } else {
    reduce_staged(t, op, root);
  }
}

void HostCommunicator::reduce_in_place(Tensor t, ReduceOp op, int root) {
  const Slice slice = slice_of(t.numel(), rank(), size());
  sources_.clear();
  destinations_.clear();
  for (int r = 0; r < size(); ++r) {
    std::byte* data = host_.at(r, host_.announcement(r).in_offset) + slice.begin * width(t.dtype());
    sources_.push_back(data);
    if (root == kEveryRank || root == r) destinations_.push_back(data);
  }
  reduce_buffers(t.dtype(), op, sources_, destinations_, slice.size());
  host_.barrier();
}

void HostCommunicator::reduce_staged(Tensor t, ReduceOp op, int root) {
  const int64_t chunk = HostGroup::kStageBytes / width(t.dtype());
  for (int64_t begin = 0; begin < t.numel(); begin += chunk) {
    const int64_t count = std::min(chunk, t.numel() - begin);
    std::byte* data = bytes_of(t) + begin * width(t.dtype());
    const int parity = stage_parity();
    const int sums = 2 + parity;
    copy_bytes(host_.stage(rank(), parity), data, count * width(t.dtype()));
    host_.barrier();
    const Slice own = slice_of(count, rank(), size());
    const int64_t shift = own.begin * width(t.dtype());
    reduce_from([&](int r) { return host_.stage(r, parity) + shift; }, t.dtype(), op, host_.stage(rank(), sums) + shift,
                own.size());
    host_.barrier();
    if (root != kEveryRank && root != rank()) continue;
    for (int r = 0; r < size(); ++r) {
      const Slice slice = slice_of(count, r, size());
      const int64_t at = slice.begin * width(t.dtype());
      copy_bytes(data + at, host_.stage(r, sums) + at, slice.size() * width(t.dtype()));
    }
  }
}

// ---- all_gather -----------------------------------------------------------------------------------------------------

Work HostCommunicator::all_gather(Tensor in, Tensor out) {
  gather_pieces(in, out, Pieces::even(in.numel(), size()));
  return Work();
}

Work HostCommunicator::all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) {
  gather_pieces(in, out, Pieces::of(counts));
  return Work();
}

void HostCommunicator::gather_pieces(Tensor in, Tensor out, const Pieces& pieces) {
  ensure(in.contiguous() && out.contiguous() && in.dtype() == out.dtype() && pieces.ranks() == size() &&
             in.numel() == pieces.count(rank()) && out.numel() == pieces.total(),
         "all_gather: out holds the pieces of all ranks, contiguous and of one dtype");
  const int64_t unit = width(in.dtype());
  const auto to = [&](int r) { return bytes_of(out) + pieces.begin(r) * unit; };
  Announcement mine{Operation::AllGather, in.dtype(), ReduceOp::Sum, 0, out.numel()};
  const bool is_inline = pieces.largest() * unit <= HostGroup::kInlineBytes;
  if (is_inline) {
    copy_bytes(host_.next_inline_data(), bytes_of(in), in.bytes());
  } else {
    mine.in_offset = host_.offset_of(in.data(), in.bytes());
  }
  host_.meet(mine);
  if (is_inline) {
    for (int r = 0; r < size(); ++r) {
      copy_bytes(to(r), host_.inline_data(r), pieces.count(r) * unit);
    }
    return;
  }
  if (all_in_windows()) {
    for (int i = 0; i < size(); ++i) {
      const int r = (rank() + i) % size();  // not all from the same rank at once
      copy_bytes(to(r), host_.at(r, host_.announcement(r).in_offset), pieces.count(r) * unit);
    }
    host_.barrier();
    return;
  }
  for (int64_t begin = 0; begin < pieces.largest() * unit; begin += HostGroup::kStageBytes) {
    const auto bytes = [&](int r) {
      return std::clamp<int64_t>(pieces.count(r) * unit - begin, 0, HostGroup::kStageBytes);
    };
    const int parity = stage_parity();
    copy_bytes(host_.stage(rank(), parity), bytes_of(in) + begin, bytes(rank()));
    host_.barrier();
    for (int r = 0; r < size(); ++r) copy_bytes(to(r) + begin, host_.stage(r, parity), bytes(r));
  }
}

// ---- reduce_scatter -------------------------------------------------------------------------------------------------

Work HostCommunicator::reduce_scatter(Tensor in, Tensor out, ReduceOp op) {
  scatter_pieces(in, out, Pieces::even(out.numel(), size()), op);
  return Work();
}

Work HostCommunicator::reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) {
  scatter_pieces(in, out, Pieces::of(counts), op);
  return Work();
}

void HostCommunicator::scatter_pieces(Tensor in, Tensor out, const Pieces& pieces, ReduceOp op) {
  ensure(in.contiguous() && out.contiguous() && in.dtype() == out.dtype() && pieces.ranks() == size() &&
             out.numel() == pieces.count(rank()) && in.numel() == pieces.total(),
         "reduce_scatter: in holds the pieces of all ranks, contiguous and of one dtype");
  Announcement mine{Operation::ReduceScatter, in.dtype(), op, 0, in.numel()};
  const int64_t shift = pieces.begin(rank()) * width(in.dtype());
  const bool is_inline = in.bytes() <= HostGroup::kInlineBytes;
  if (is_inline) {
    copy_bytes(host_.next_inline_data(), bytes_of(in), in.bytes());
  } else {
    mine.in_offset = host_.offset_of(in.data(), in.bytes());
  }
  host_.meet(mine);
  if (is_inline) {
    reduce_from([&](int r) { return host_.inline_data(r) + shift; }, in.dtype(), op, bytes_of(out), out.numel());
  } else if (all_in_windows()) {
    reduce_from([&](int r) { return host_.at(r, host_.announcement(r).in_offset) + shift; }, in.dtype(), op,
                bytes_of(out), out.numel());
    host_.barrier();
  } else {
    scatter_staged(in, out, pieces, op);
  }
}

void HostCommunicator::scatter_staged(Tensor in, Tensor out, const Pieces& pieces, ReduceOp op) {
  const int64_t unit = width(in.dtype());
  const int64_t chunk = HostGroup::kStageBytes / unit / size();  // elements of each piece
  for (int64_t begin = 0; begin < pieces.largest(); begin += chunk) {
    const auto count = [&](int r) { return std::clamp<int64_t>(pieces.count(r) - begin, 0, chunk); };
    const int parity = stage_parity();
    for (int r = 0; r < size(); ++r) {
      copy_bytes(host_.stage(rank(), parity) + r * chunk * unit, bytes_of(in) + (pieces.begin(r) + begin) * unit,
                 count(r) * unit);
    }
    host_.barrier();
    reduce_from([&](int r) { return host_.stage(r, parity) + rank() * chunk * unit; }, in.dtype(), op,
                bytes_of(out) + begin * unit, count(rank()));
  }
}

// ---- broadcast, all_to_all, barrier ---------------------------------------------------------------------------------

Work HostCommunicator::broadcast(Tensor t, int root) {
  ensure(t.contiguous() && root >= 0 && root < size(), "broadcast: contiguous tensor, root of the group");
  Announcement mine{Operation::Broadcast, t.dtype(), ReduceOp::Sum, root, t.numel()};
  const bool is_root = rank() == root;
  const bool is_inline = t.bytes() <= HostGroup::kInlineBytes;
  if (is_inline && is_root) copy_bytes(host_.next_inline_data(), bytes_of(t), t.bytes());
  if (!is_inline) mine.in_offset = host_.offset_of(t.data(), t.bytes());
  host_.meet(mine);
  if (is_inline) {
    if (!is_root) copy_bytes(bytes_of(t), host_.inline_data(root), t.bytes());
    return Work();
  }
  const int64_t offset = host_.announcement(root).in_offset;
  if (offset >= 0) {
    if (!is_root) copy_bytes(bytes_of(t), host_.at(root, offset), t.bytes());
    host_.barrier();
    return Work();
  }
  for (int64_t begin = 0; begin < t.bytes(); begin += HostGroup::kStageBytes) {
    const int64_t bytes = std::min(HostGroup::kStageBytes, t.bytes() - begin);
    const int parity = stage_parity();
    if (is_root) copy_bytes(host_.stage(root, parity), bytes_of(t) + begin, bytes);
    host_.barrier();
    if (!is_root) copy_bytes(bytes_of(t) + begin, host_.stage(root, parity), bytes);
  }
  return Work();
}

Work HostCommunicator::all_to_all(Tensor in, Tensor out) {
  ensure(in.contiguous() && out.contiguous() && in.dtype() == out.dtype() && in.numel() == out.numel() &&
             in.numel() % size() == 0,
         "all_to_all: in and out alike, contiguous, cut into equal pieces");
  Announcement mine{Operation::AllToAll, in.dtype(), ReduceOp::Sum, 0, in.numel()};
  // In place, a peer's piece could be overwritten before the peer has read it: such calls are staged.
  if (!overlap(in, out)) mine.in_offset = host_.offset_of(in.data(), in.bytes());
  host_.meet(mine);
  const int64_t piece = in.bytes() / size();
  if (all_in_windows()) {
    for (int i = 0; i < size(); ++i) {
      const int r = (rank() + i) % size();
      copy_bytes(bytes_of(out) + r * piece, host_.at(r, host_.announcement(r).in_offset) + rank() * piece, piece);
    }
    host_.barrier();
    return Work();
  }
  const int64_t chunk = HostGroup::kStageBytes / size();
  for (int64_t begin = 0; begin < piece; begin += chunk) {
    const int64_t bytes = std::min(chunk, piece - begin);
    const int parity = stage_parity();
    for (int r = 0; r < size(); ++r) {
      copy_bytes(host_.stage(rank(), parity) + r * chunk, bytes_of(in) + r * piece + begin, bytes);
    }
    host_.barrier();
    for (int r = 0; r < size(); ++r) {
      copy_bytes(bytes_of(out) + r * piece + begin, host_.stage(r, parity) + rank() * chunk, bytes);
    }
  }
  return Work();
}

void HostCommunicator::barrier() { host_.meet(Announcement{}); }

Tensor HostCommunicator::allocate_symmetric(DType dtype, int64_t elements) {
  const auto bytes = static_cast<size_t>(elements * width(dtype));
  return Tensor(host_.memory().allocate(bytes), dtype, {elements});  // given back with the grid's memory
}

}  // namespace triax::comm

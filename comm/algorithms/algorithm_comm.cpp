#include "comm/algorithms/algorithm_comm.h"

#include <algorithm>
#include <array>

#include "comm/copy_bytes.h"
#include "comm/tensor_bytes.h"

namespace triax::comm {
namespace {

constexpr int64_t kBlockBytes = int64_t{16} << 20;  ///< of the buffer that one run of a plan goes through
constexpr size_t kMostKnown = 256;                  ///< plans kept

}  // namespace

AlgorithmCommunicator::AlgorithmCommunicator(std::unique_ptr<Communicator> usual, std::unique_ptr<Communicator> links,
                                             Algorithm algorithm, SumOrder order, PlanGroup group,
                                             MemoryProvider& memory)
    : usual_(std::move(usual)),
      links_(std::move(links)),
      algorithm_(algorithm),
      order_(order),
      runner_(links_.get(), std::move(group), memory),
      arena_(memory) {}

bool AlgorithmCommunicator::has(Operation op) const {
  if (op == Operation::AllReduce) return true;
  return (op == Operation::ReduceScatter || op == Operation::AllGather) && has_scatter_plan(algorithm_);
}

const SentBytes* AlgorithmCommunicator::counted(Operation op) const {
  return has(op) ? &runner_.sent() : usual_->counted(op);
}

const Plan& AlgorithmCommunicator::plan_for(Operation op, std::span<const int64_t> counts) {
  for (const Known& known : known_) {
    if (known.op == op && std::equal(counts.begin(), counts.end(), known.counts.begin(), known.counts.end())) {
      return known.plan;
    }
  }
  if (known_.size() == kMostKnown) known_.clear();
  Known made{op, {counts.begin(), counts.end()}, {}};
  const PlanGroup& group = runner_.group();
  if (op == Operation::AllReduce) {
    made.plan = plan_all_reduce(algorithm_, order_, group, counts[0], counts[1]);
  } else if (op == Operation::ReduceScatter) {
    made.plan = plan_reduce_scatter(algorithm_, order_, group, Pieces::of(made.counts));
  } else {
    made.plan = plan_all_gather(algorithm_, group, Pieces::of(made.counts));
  }
  known_.push_back(std::move(made));
  return known_.back().plan;
}

Tensor AlgorithmCommunicator::work(DType dtype, int64_t elements) {
  const int64_t bytes = std::max<int64_t>(elements * width(dtype), 1);
  if (static_cast<int64_t>(work_.size_bytes()) < bytes) {
    work_.reset();
    work_ = arena_.allocate(static_cast<size_t>(bytes), MemoryCategory::Communication);
  }
  return Tensor(work_.data(), dtype, {elements});
}

Work AlgorithmCommunicator::all_reduce(Tensor t, ReduceOp op) {
  ensure(t.contiguous(), "all_reduce: contiguous tensor");
  const Tensor flat = t.flat();
  // Whole multiples of the ranks, so that all blocks but the last are cut evenly.
  const int64_t n = size();
  const int64_t block = std::max<int64_t>(kBlockBytes / width(t.dtype()) / n, 1) * n;
  for (int64_t begin = 0; begin < flat.numel(); begin += block) {
    const Tensor part = flat.range(begin, std::min(flat.numel(), begin + block));
    const std::array<int64_t, 2> key{part.numel(), PlanRunner::kChunkBytes / width(t.dtype())};
    runner_.run(plan_for(Operation::AllReduce, key), part, op);
  }
  return Work();
}

// ---- all_gather -----------------------------------------------------------------------------------------------------

Work AlgorithmCommunicator::all_gather(Tensor in, Tensor out) {
  if (!has(Operation::AllGather)) return usual_->all_gather(in, out);
  gather_pieces(in, out, Pieces::even(in.numel(), size()));
  return Work();
}

Work AlgorithmCommunicator::all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) {
  if (!has(Operation::AllGather)) return usual_->all_gather_v(in, out, counts);
  gather_pieces(in, out, Pieces::of(counts));
  return Work();
}

void AlgorithmCommunicator::gather_pieces(Tensor in, Tensor out, const Pieces& pieces) {
  ensure(in.contiguous() && out.contiguous() && in.dtype() == out.dtype() && pieces.ranks() == size() &&
             in.numel() == pieces.count(rank()) && out.numel() == pieces.total(),
         "all_gather: out holds the pieces of all ranks, contiguous and of one dtype");
  if (runner_.moves()) copy_bytes(bytes_at(out.flat(), pieces.begin(rank())), bytes_at(in, 0), in.bytes());
  counts_.clear();
  for (int r = 0; r < size(); ++r) counts_.push_back(pieces.count(r));
  runner_.run(plan_for(Operation::AllGather, counts_), out.flat(), ReduceOp::Sum);
}

// ---- reduce_scatter -------------------------------------------------------------------------------------------------

Work AlgorithmCommunicator::reduce_scatter(Tensor in, Tensor out, ReduceOp op) {
  if (!has(Operation::ReduceScatter)) return usual_->reduce_scatter(in, out, op);
  scatter_pieces(in, out, Pieces::even(out.numel(), size()), op);
  return Work();
}

Work AlgorithmCommunicator::reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) {
  if (!has(Operation::ReduceScatter)) return usual_->reduce_scatter_v(in, out, counts, op);
  scatter_pieces(in, out, Pieces::of(counts), op);
  return Work();
}

void AlgorithmCommunicator::scatter_pieces(Tensor in, Tensor out, const Pieces& pieces, ReduceOp op) {
  ensure(in.contiguous() && out.contiguous() && in.dtype() == out.dtype() && pieces.ranks() == size() &&
             out.numel() == pieces.count(rank()) && in.numel() == pieces.total(),
         "reduce_scatter: in holds the pieces of all ranks, contiguous and of one dtype");
  const int64_t chunk = std::max<int64_t>(kBlockBytes / width(in.dtype()) / size(), 1);  // elements of each piece
  for (int64_t begin = 0; begin < pieces.largest(); begin += chunk) {
    scatter_block(in.flat(), out.flat(), pieces, begin, chunk, op);
  }
}

void AlgorithmCommunicator::scatter_block(Tensor in, Tensor out, const Pieces& pieces, int64_t begin, int64_t chunk,
                                          ReduceOp op) {
  const int64_t unit = width(in.dtype());
  counts_.clear();
  int64_t total = 0, own = 0;
  for (int r = 0; r < size(); ++r) {
    counts_.push_back(std::clamp<int64_t>(pieces.count(r) - begin, 0, chunk));
    if (r < rank()) own += counts_.back();
    total += counts_.back();
  }
  const Tensor block = work(in.dtype(), runner_.moves() ? total : 0);
  int64_t filled = 0;
  for (int r = 0; r < size() && runner_.moves(); ++r) {
    const int64_t count = counts_[static_cast<size_t>(r)];
    copy_bytes(bytes_at(block, filled), bytes_at(in, pieces.begin(r) + begin), count * unit);
    filled += count;
  }
  runner_.run(plan_for(Operation::ReduceScatter, counts_), block, op);
  if (runner_.moves())
    copy_bytes(bytes_at(out, begin), bytes_at(block, own), counts_[static_cast<size_t>(rank())] * unit);
}

}  // namespace triax::comm

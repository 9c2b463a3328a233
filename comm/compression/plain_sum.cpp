#include <algorithm>

#include "base/error.h"
#include "comm/compression/bucket_sum.h"
#include "comm/ledger.h"

namespace triax::comm {
namespace {

constexpr int64_t kInPlaceElements = 65536;  // from here on a copy costs more than a message of its own
constexpr int64_t kGap = 32;                 // zeros of alignment between tensors may travel along

}  // namespace

PlainSum::PlainSum(const CompressionContext& context, const std::vector<CompressedBucket>& buckets, SumFor sum_for)
    : context_(context), sum_for_(sum_for) {
  int64_t longest = 0;
  size_t most = 0;
  for (const CompressedBucket& bucket : buckets) {
    runs_.push_back(runs_of(bucket));
    longest = std::max(longest, runs_.back().packed_elements);
    most = std::max(most, runs_.back().in_place.size() + 1);
  }
  if (longest > 0) {
    buffer_ = context.arena->allocate(context.gradient.dtype(), longest, MemoryCategory::Communication);
    pack_ = buffer_.view(context.gradient.dtype(), {longest});
  }
  in_flight_.reserve(most);
}

PlainSum::Runs PlainSum::runs_of(const CompressedBucket& bucket) const {
  std::vector<Run> runs;
  bool open = false;
  for (const GradientTensor& t : bucket.tensors) {
    const int64_t end = t.begin + t.count;
    if (!t.compressed && open && t.begin - runs.back().end < kGap) {
      runs.back().end = end;
    } else if (!t.compressed) {
      runs.push_back({t.begin, end});
    }
    open = !t.compressed;
  }
  if (sum_for_ == SumFor::PieceOwner) return pieces_of(runs, bucket);
  Runs sorted;
  for (const Run& run : runs) {
    if (run.end - run.begin >= kInPlaceElements) {
      sorted.in_place.push_back(run);
    } else {
      sorted.packed.push_back(run);
    }
  }
  if (sorted.in_place.empty() && sorted.packed.size() == 1) std::swap(sorted.in_place, sorted.packed);
  for (const Run& run : sorted.packed) sorted.packed_elements += run.end - run.begin;
  return sorted;
}

PlainSum::Runs PlainSum::pieces_of(const std::vector<Run>& runs, const CompressedBucket& bucket) const {
  const int ranks = context_.group->size();
  const int64_t piece = (bucket.end - bucket.begin) / ranks;
  ensure(piece * ranks == bucket.end - bucket.begin, "PlainSum: the bucket is not padded to the group");
  Runs cut;
  cut.counts.resize(static_cast<size_t>(ranks));
  for (const Run& run : runs) {
    for (int64_t begin = run.begin; begin < run.end;) {
      const auto owner = static_cast<int>((begin - bucket.begin) / piece);
      const int64_t end = std::min(run.end, bucket.begin + (owner + 1) * piece);
      cut.packed.push_back({begin, end, owner});
      cut.counts[static_cast<size_t>(owner)] += end - begin;
      cut.packed_elements += end - begin;
      begin = end;
    }
  }
  return cut;
}

void PlainSum::copy_packed(Copy direction) {
  int64_t used = 0;
  for (const Run& run : runs_[current_].packed) {
    const Tensor gradient = context_.gradient.range(run.begin, run.end);
    const Tensor packed = pack_.range(used, used + gradient.numel());
    used += gradient.numel();
    if (direction == Copy::IntoPack) {
      context_.device->copy(gradient, packed);
    } else if (sum_for_ == SumFor::EveryRank || run.owner == context_.group->rank()) {
      context_.device->copy(packed, gradient);
    }
  }
}

void PlainSum::start(size_t bucket, uint64_t) {
  finish();
  current_ = bucket;
  const Runs& runs = runs_[bucket];
  copy_packed(Copy::IntoPack);
  context_.device->synchronize();
  Communicator& group = *context_.group;
  const Tensor packed = runs.packed_elements > 0 ? pack_.range(0, runs.packed_elements) : Tensor();
  if (packed && sum_for_ == SumFor::PieceOwner) {
    int64_t begin = 0;
    for (int r = 0; r < group.rank(); ++r) begin += runs.counts[static_cast<size_t>(r)];
    const Tensor own = packed.range(begin, begin + runs.counts[static_cast<size_t>(group.rank())]);
    in_flight_.push_back(group.reduce_scatter_v(packed, own, runs.counts, ReduceOp::Sum));
  } else if (packed) {
    in_flight_.push_back(group.all_reduce(packed, ReduceOp::Sum));
  }
  for (const Run& run : runs.in_place) {
    in_flight_.push_back(group.all_reduce(context_.gradient.range(run.begin, run.end), ReduceOp::Sum));
  }
}

void PlainSum::finish() {
  if (in_flight_.empty()) return;
  for (Work& work : in_flight_) work.wait();
  in_flight_.clear();
  copy_packed(Copy::IntoGradient);
}

double PlainSum::sent_bytes() const {
  int64_t elements = 0;
  for (const Runs& runs : runs_) {
    elements += runs.packed_elements;
    for (const Run& run : runs.in_place) elements += run.end - run.begin;
  }
  const auto size = static_cast<int64_t>(size_of(context_.gradient.dtype()));
  const Operation operation = sum_for_ == SumFor::EveryRank ? Operation::AllReduce : Operation::ReduceScatter;
  return comm::sent_bytes(operation, elements * size, context_.group->size());
}

}  // namespace triax::comm

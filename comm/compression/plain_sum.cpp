#include <algorithm>

#include "comm/compression/bucket_sum.h"
#include "comm/ledger.h"

namespace triax::comm {
namespace {

constexpr int64_t kInPlaceElements = 65536;  // from here on a copy costs more than a message of its own
constexpr int64_t kGap = 32;                 // zeros of alignment between tensors may travel along

}  // namespace

PlainSum::PlainSum(const CompressionContext& context, const std::vector<CompressedBucket>& buckets)
    : context_(context) {
  int64_t longest = 0;
  size_t most = 0;
  for (const CompressedBucket& bucket : buckets) {
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
    Runs sorted;
    for (const Run& run : runs) {
      if (run.end - run.begin >= kInPlaceElements) {
        sorted.in_place.push_back(run);
      } else {
        sorted.packed.push_back(run);
        sorted.packed_elements += run.end - run.begin;
      }
    }
    if (sorted.in_place.empty() && sorted.packed.size() == 1) std::swap(sorted.in_place, sorted.packed);
    if (sorted.packed.empty()) sorted.packed_elements = 0;
    longest = std::max(longest, sorted.packed_elements);
    most = std::max(most, sorted.in_place.size() + 1);
    runs_.push_back(std::move(sorted));
  }
  if (longest > 0) {
    buffer_ = context.arena->allocate(context.gradient.dtype(), longest, MemoryCategory::Communication);
    pack_ = buffer_.view(context.gradient.dtype(), {longest});
  }
  in_flight_.reserve(most);
}

void PlainSum::copy_packed(bool into_gradient) {
  int64_t used = 0;
  for (const Run& run : runs_[current_].packed) {
    const Tensor gradient = context_.gradient.range(run.begin, run.end);
    const Tensor packed = pack_.range(used, used + gradient.numel());
    used += gradient.numel();
    if (into_gradient) {
      context_.device->copy(packed, gradient);
    } else {
      context_.device->copy(gradient, packed);
    }
  }
}

void PlainSum::start(size_t bucket, uint64_t) {
  finish();
  current_ = bucket;
  const Runs& runs = runs_[bucket];
  copy_packed(false);
  context_.device->synchronize();
  if (runs.packed_elements > 0) {
    in_flight_.push_back(context_.group->all_reduce(pack_.range(0, runs.packed_elements), ReduceOp::Sum));
  }
  for (const Run& run : runs.in_place) {
    in_flight_.push_back(context_.group->all_reduce(context_.gradient.range(run.begin, run.end), ReduceOp::Sum));
  }
}

void PlainSum::finish() {
  if (in_flight_.empty()) return;
  for (Work& work : in_flight_) work.wait();
  in_flight_.clear();
  copy_packed(true);
}

double PlainSum::sent_bytes() const {
  int64_t elements = 0;
  for (const Runs& runs : runs_) {
    elements += runs.packed_elements;
    for (const Run& run : runs.in_place) elements += run.end - run.begin;
  }
  const auto size = static_cast<int64_t>(size_of(context_.gradient.dtype()));
  return comm::sent_bytes(Operation::AllReduce, elements * size, context_.group->size());
}

}  // namespace triax::comm

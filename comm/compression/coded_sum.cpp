#include "comm/compression/coded_sum.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "comm/ledger.h"

namespace triax::comm {
namespace {

constexpr uint32_t kDrawsOfSums = 1U << 20;  // whoever owns a piece, it draws this way

}  // namespace

CodedSum::CodedSum(const CompressionContext& context, const std::vector<CompressedBucket>& buckets,
                   const CodedSumOptions& options)
    : context_(context), options_(options) {
  const int ranks = context.group->size();
  const auto rank = static_cast<size_t>(context.group->rank());
  int64_t state = 0, own_state = 0, longest = 0;
  for (const CompressedBucket& bucket : buckets) {
    Bucket made;
    made.pieces = cut_pieces(bucket, options.codec, options.block_length, ranks, options.cut, state);
    for (size_t r = 0; r < made.pieces.pieces.size(); ++r) {
      for (kernels::CodeSegment s : made.pieces.pieces[r]) {
        s.packed += static_cast<int64_t>(r) * made.pieces.piece_bytes;
        made.send.push_back(s);
      }
    }
    made.own = made.pieces.pieces[rank];
    for (const GradientTensor& t : bucket.tensors) {
      if (!t.compressed) continue;
      names_.push_back({t.name, t.begin, t.count, state});
      state += t.count;
      for (kernels::CodeSegment& s : made.own) {
        if (s.begin < t.begin || s.begin >= t.begin + t.count) continue;
        s.state = own_state;
        own_names_.push_back({t.name, s.begin, s.count, own_state});
        own_state += s.count;
      }
    }
    longest = std::max(longest, made.pieces.piece_bytes);
    buckets_.push_back(std::move(made));
  }
  const DType dtype = context.gradient.dtype();
  const auto allocate = [&](Buffer& buffer, DType type, int64_t elements, MemoryCategory category) {
    if (elements == 0) return Tensor();
    buffer = context.arena->allocate(type, elements, category);
    const Tensor t = buffer.view(type, {elements});
    if (category == MemoryCategory::Optimizer) context.device->fill(t, 0);
    return t;
  };
  if (options.error_feedback == ErrorFeedback::Yes) {
    residual_ = allocate(residual_buffer_, dtype, state, MemoryCategory::Optimizer);
    if (options.sum_for == SumFor::EveryRank) {
      sum_residual_ = allocate(sum_residual_buffer_, dtype, own_state, MemoryCategory::Optimizer);
    }
  }
  send_ = allocate(send_buffer_, DType::UInt8, longest * ranks, MemoryCategory::Communication);
  receive_ = allocate(receive_buffer_, DType::UInt8, longest * ranks, MemoryCategory::Communication);
}

void CodedSum::encode(const std::vector<kernels::CodeSegment>& segments, Tensor residual, Tensor packed,
                      uint32_t sender) {
  const Stopwatch watch;
  context_.device->compression()->encode(
      {options_.codec, segments, context_.gradient, residual, packed, options_.levels, {options_.seed, step_, sender}});
  context_.device->synchronize();
  kernel_s_ += watch.elapsed_s();
}

void CodedSum::start(size_t bucket, uint64_t step) {
  finish();
  current_ = bucket;
  step_ = step;
  const Bucket& b = buckets_[bucket];
  const int64_t bytes = b.pieces.piece_bytes * context_.group->size();
  if (bytes == 0) return;
  const Tensor send = send_.range(0, bytes);
  encode(b.send, residual_, send, static_cast<uint32_t>(context_.group->rank()));
  work_ = context_.group->all_to_all(send, receive_.range(0, bytes));
  under_way_ = true;
}

void CodedSum::finish() {
  if (!under_way_) return;
  under_way_ = false;
  work_.wait();
  const Bucket& b = buckets_[current_];
  const int64_t piece = b.pieces.piece_bytes;
  const int ranks = context_.group->size();
  kernels::Compression& codes = *context_.device->compression();
  {
    const Stopwatch watch;
    for (int r = 0; r < ranks; ++r) {
      codes.decode(options_.codec, b.own, receive_.range(r * piece, (r + 1) * piece), context_.gradient,
                   r == 0 ? kernels::Decode::Store : kernels::Decode::Add);
    }
    context_.device->synchronize();
    kernel_s_ += watch.elapsed_s();
  }
  if (options_.sum_for == SumFor::PieceOwner) return;
  const Tensor own = send_.range(0, piece);
  const Tensor all = receive_.range(0, piece * ranks);
  encode(b.own, sum_residual_, own, kDrawsOfSums);
  context_.group->all_gather(own, all).wait();
  const Stopwatch watch;
  codes.decode(options_.codec, b.send, all, context_.gradient, kernels::Decode::Store);
  context_.device->synchronize();
  kernel_s_ += watch.elapsed_s();
}

std::vector<StateTensor> CodedSum::state() const {
  std::vector<StateTensor> all;
  const auto add = [&all](const char* kind, const std::vector<Named>& names, Tensor values) {
    if (!values) return;
    for (const Named& n : names) {
      all.push_back({kind, n.name, false, n.begin, n.begin + n.count, values.range(n.state, n.state + n.count)});
    }
  };
  add(kGradResidual, names_, residual_);
  add(kServerResidual, own_names_, sum_residual_);
  return all;
}

double CodedSum::sent_bytes() const {
  int64_t bytes = 0;
  for (const Bucket& b : buckets_) bytes += b.pieces.piece_bytes * context_.group->size();
  const int n = context_.group->size();
  const double once = comm::sent_bytes(Operation::AllToAll, bytes, n);
  return options_.sum_for == SumFor::EveryRank ? once + comm::sent_bytes(Operation::AllGather, bytes, n) : once;
}

}  // namespace triax::comm

#include "comm/compression/compressed_sum.h"

#include "base/error.h"
#include "comm/compression/power_sgd_sum.h"
#include "comm/compression/top_k_sum.h"
#include "comm/ledger.h"

namespace triax::comm {
namespace {

ErrorFeedback feedback_of(const CompressionOptions& options) {
  return options.feedback() ? ErrorFeedback::Yes : ErrorFeedback::No;
}

CodedSumOptions coded_options(const CompressionOptions& options, const SumLayout& layout, uint64_t seed) {
  CodedSumOptions coded;
  switch (options.method) {
    case CompressionMethod::Int8:
      coded.codec = kernels::Codec::Int8;
      break;
    case CompressionMethod::Qsgd:
      coded.codec = kernels::Codec::Qsgd;
      break;
    case CompressionMethod::OneBitAdam:
      coded.codec = kernels::Codec::Sign;
      break;
    default:
      coded.codec = kernels::Codec::BFloat16;
      break;
  }
  coded.block_length = options.block();
  coded.levels = static_cast<int>(options.levels);
  coded.error_feedback = feedback_of(options);
  coded.sum_for = layout.sum_for;
  coded.cut = layout.cut;
  coded.seed = seed;
  return coded;
}

}  // namespace

std::string_view name_of(CompressionMethod method) {
  switch (method) {
    case CompressionMethod::None:
      return "none";
    case CompressionMethod::TopK:
      return "topk";
    case CompressionMethod::OneBitAdam:
      return "onebit-adam";
    case CompressionMethod::PowerSgd:
      return "powersgd";
    case CompressionMethod::Qsgd:
      return "qsgd";
    case CompressionMethod::Int8:
      return "int8";
    case CompressionMethod::BFloat16:
      return "bf16";
  }
  return "?";
}

std::vector<CompressedBucket> with_exemptions(std::vector<CompressedBucket> buckets,
                                              const CompressionOptions& options) {
  for (CompressedBucket& bucket : buckets) {
    for (GradientTensor& t : bucket.tensors) {
      const bool taken = options.method != CompressionMethod::PowerSgd || (t.rows > 1 && t.cols > 1);
      t.compressed = t.compressed && taken && t.count > 0 && t.global_count >= options.min_elements;
    }
  }
  return buckets;
}

std::unique_ptr<BucketSum> make_bucket_sum(const CompressionContext& context,
                                           const std::vector<CompressedBucket>& buckets,
                                           const CompressionOptions& options, const SumLayout& layout, uint64_t seed) {
  switch (options.method) {
    case CompressionMethod::None:
      ensure(false, "make_bucket_sum: no method");
      break;
    case CompressionMethod::TopK:
      return std::make_unique<TopKSum>(context, buckets, options.density, feedback_of(options));
    case CompressionMethod::PowerSgd:
      return std::make_unique<PowerSgdSum>(context, buckets, options.rank, feedback_of(options), seed);
    default:
      break;
  }
  return std::make_unique<CodedSum>(context, buckets, coded_options(options, layout, seed));
}

CompressedSum::CompressedSum(const CompressionContext& context, std::vector<CompressedBucket> buckets,
                             const CompressionOptions& options, const SumLayout& layout, uint64_t seed)
    : plain_(context, buckets, layout.sum_for) {
  if (options.method != CompressionMethod::OneBitAdam) {
    coded_ = make_bucket_sum(context, buckets, options, layout, seed);
  }
}

void CompressedSum::start(size_t bucket, uint64_t step) {
  finish();
  if (coded_) coded_->start(bucket, step);
  plain_.start(bucket, step);
}

void CompressedSum::finish() {
  if (coded_) coded_->finish();
  plain_.finish();
}

std::vector<StateTensor> CompressedSum::state() const { return coded_ ? coded_->state() : std::vector<StateTensor>(); }

double CompressedSum::sent_bytes() const { return plain_.sent_bytes() + (coded_ ? coded_->sent_bytes() : 0); }

double dense_bytes(const std::vector<CompressedBucket>& buckets, DType dtype, int ranks, SumFor sum_for) {
  int64_t elements = 0;
  for (const CompressedBucket& bucket : buckets) elements += bucket.end - bucket.begin;
  const Operation operation = sum_for == SumFor::EveryRank ? Operation::AllReduce : Operation::ReduceScatter;
  return sent_bytes(operation, elements * static_cast<int64_t>(size_of(dtype)), ranks);
}

}  // namespace triax::comm

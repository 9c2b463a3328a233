#include "train/gradient_compression.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/philox.h"

namespace triax::train {

using parallel::Parameter;

namespace {

comm::GradientTensor tensor_of(const Parameter& p) {
  comm::GradientTensor t;
  t.name = p.name;
  t.stream = stream_of(p.name);  // a tied copy draws as the original does
  t.begin = p.offset;
  t.count = p.true_numel();
  const bool matrix = p.local_shape.size() == 2;
  ensure(!matrix || p.spec.cut_dim != 1 || p.spec.count == p.local_shape[1], "compression: padded columns");
  t.cols = matrix ? p.local_shape[1] : t.count;
  t.rows = matrix ? t.count / t.cols : 1;
  t.global_begin = t.count > 0 ? p.global_index(0) : 0;
  t.global_cols = p.spec.global_shape.back();
  t.global_count = 1;
  for (const int64_t extent : p.spec.global_shape) t.global_count *= extent;
  return t;
}

bool is_exempt(const parallel::ParameterUnit& unit, const comm::CompressionOptions& options) {
  return (unit.kind == parallel::UnitKind::Embedding && options.exempt_embedding) ||
         (unit.kind == parallel::UnitKind::Head && options.exempt_head);
}

comm::CompressionContext context_of(const comm::CompressionOptions& options, const parallel::ParameterStore& store,
                                    comm::Communicator& group, kernels::Device& device, Arena& arena) {
  if (device.compression() == nullptr) {
    throw ConfigError(
        fmt::format("--grad-compression {}: the {} device has no compression in this version; use "
                    "--device cpu, or --grad-compression none",
                    comm::name_of(options.method), device.name()));
  }
  return {&group, &device, &arena, store.flat_grad()};
}

}  // namespace

std::vector<comm::CompressedBucket> compressed_buckets(const parallel::ParameterStore& store,
                                                       std::span<const parallel::FlatRange> blocks,
                                                       const comm::CompressionOptions& options) {
  std::vector<const Parameter*> ordered;
  for (const Parameter& p : store.parameters()) ordered.push_back(&p);
  std::sort(ordered.begin(), ordered.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  std::vector<comm::CompressedBucket> buckets;
  for (const parallel::FlatRange& block : blocks) {
    comm::CompressedBucket bucket{block.begin, block.end, {}};
    for (const Parameter* p : ordered) {
      if (p->offset < block.begin || p->offset >= block.end || p->true_numel() == 0) continue;
      bucket.tensors.push_back(tensor_of(*p));
      bucket.tensors.back().compressed = !is_exempt(store.units()[static_cast<size_t>(p->unit)], options);
    }
    buckets.push_back(std::move(bucket));
  }
  return comm::with_exemptions(std::move(buckets), options);
}

GradientCompression::GradientCompression(const comm::CompressionOptions& options, const parallel::ParameterStore& store,
                                         std::span<const parallel::FlatRange> blocks, comm::Communicator& group,
                                         kernels::Device& device, Arena& arena, comm::SumFor sum_for, uint64_t seed)
    : options_(options),
      device_(&device),
      buckets_(compressed_buckets(store, blocks, options)),
      sum_(context_of(options, store, group, device, arena), buckets_, options,
           {sum_for, sum_for == comm::SumFor::EveryRank ? comm::PieceCut::Blocks : comm::PieceCut::Even}, seed),
      dense_bytes_per_step_(comm::dense_bytes(buckets_, store.flat_grad().dtype(), group.size(), sum_for)) {
  if (options.method == comm::CompressionMethod::OneBitAdam) {
    momentum_sum_ = comm::make_bucket_sum({&group, &device, &arena, store.flat_grad()}, buckets_, options, {}, seed);
  }
}

void GradientCompression::start_step(int64_t step, int64_t update) {
  step_ = step;
  active_ = update > options_.warmup();
  ++steps_;
  dense_bytes_ += dense_bytes_per_step_;
  sent_bytes_ +=
      active_ ? sum_.sent_bytes() + (momentum_sum_ ? momentum_sum_->sent_bytes() : 0) : dense_bytes_per_step_;
}

void GradientCompression::start(size_t block) {
  device_->order_after_copies();  // of a checkpoint, which holds what the last codes left out
  sum_.start(block, static_cast<uint64_t>(step_));
}

void GradientCompression::finish() { sum_.finish(); }

void GradientCompression::sum_momentum() {
  for (size_t b = 0; b < buckets_.size(); ++b) momentum_sum_->start(b, static_cast<uint64_t>(step_));
  momentum_sum_->finish();
}

std::vector<comm::StateTensor> GradientCompression::state() const {
  return momentum_sum_ ? momentum_sum_->state() : sum_.state();
}

comm::CompressionTally GradientCompression::tally() const {
  return {dense_bytes_, sent_bytes_, sum_.kernel_s() + (momentum_sum_ ? momentum_sum_->kernel_s() : 0)};
}

std::string describe_savings(const GradientCompression& compression, comm::Communicator& world) {
  comm::CompressionTally tally = compression.tally();
  double sums[3] = {tally.dense_bytes, tally.sent_bytes, tally.kernel_s};
  world.all_reduce(Tensor(sums, DType::Float64, {3}), comm::ReduceOp::Sum).wait();
  const double steps = std::max<double>(1, static_cast<double>(compression.steps())) * world.size();
  return fmt::format(
      " gradient compression {}: {:.0f} of {:.0f} bytes sent per rank and step, {:.2f} times less | kernels: {:.2f} ms "
      "per step",
      comm::name_of(compression.options().method), sums[1] / steps, sums[0] / steps,
      sums[1] > 0 ? sums[0] / sums[1] : 1.0, 1e3 * sums[2] / steps);
}

}  // namespace triax::train

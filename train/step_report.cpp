#include "train/step_report.h"

#include <algorithm>
#include <cstring>

namespace triax::train {
namespace {
constexpr int64_t kFields = sizeof(RankReport) / sizeof(double);
static_assert(sizeof(RankReport) == kFields * sizeof(double));
}  // namespace

ReportExchange::ReportExchange(comm::Communicator& world, Arena& arena)
    : world_(&world),
      in_buffer_(arena.allocate(DType::Float64, kFields, MemoryCategory::Communication)),
      out_buffer_(arena.allocate(DType::Float64, kFields * world.size(), MemoryCategory::Communication)),
      in_(in_buffer_.view(DType::Float64, {kFields})),
      out_(out_buffer_.view(DType::Float64, {kFields * world.size()})) {
  // What no peer fills, in a rank that is rehearsed alone, is no number by chance.
  std::memset(out_.data(), 0, static_cast<size_t>(out_.bytes()));
}

std::span<const RankReport> ReportExchange::exchange(const RankReport& mine) {
  std::memcpy(in_.data(), &mine, sizeof(mine));
  world_->all_gather(in_, out_).wait();
  return {static_cast<const RankReport*>(out_.data()), static_cast<size_t>(world_->size())};
}

StepTotals combine(std::span<const RankReport> reports, int pipeline) {
  StepTotals t;
  double loss_sum = 0;
  double span_s = 0;
  for (const RankReport& r : reports) {
    loss_sum += r.loss_sum;
    t.tokens += r.tokens;
    t.sent_bytes += r.sent_bytes;
    span_s = std::max(span_s, r.compute_end_s);
    t.exposed_s = std::max(t.exposed_s, r.exposed_s);
    t.data_wait_s = std::max(t.data_wait_s, r.data_wait_s);
    t.live_bytes = std::max(t.live_bytes, r.live_bytes);
    t.peak_bytes = std::max(t.peak_bytes, r.peak_bytes);
    t.wishes.stop = std::max(t.wishes.stop, r.wishes.stop);
    t.wishes.save = std::max(t.wishes.save, r.wishes.save);
  }
  t.loss = t.tokens > 0 ? loss_sum / t.tokens : 0;
  if (pipeline == 1 || span_s <= 0) return t;
  double idle_s = 0;
  for (const RankReport& r : reports) idle_s += r.receive_wait_s + span_s - r.compute_end_s;
  t.bubble_fraction = idle_s / (span_s * static_cast<double>(reports.size()));
  return t;
}

}  // namespace triax::train

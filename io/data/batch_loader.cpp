#include "io/data/batch_loader.h"

#include <fmt/format.h>

#include <chrono>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "comm/running_time.h"

namespace triax::io {

namespace {

constexpr std::chrono::milliseconds kLook(250);  // between two looks at the deadline

MicroBatch make_micro_batch(const LoaderConfig& config) {
  const auto samples = static_cast<size_t>(config.shape.micro_batch_size);
  const auto rows = static_cast<size_t>(config.seq_length) * samples;
  MicroBatch batch;
  batch.positions.resize(rows);
  for (size_t row = 0; row < rows; ++row) batch.positions[row] = static_cast<int32_t>(row / samples);
  batch.sample_ids.resize(samples);
  if (config.tokens == LoaderTokens::IdsOnly) return batch;
  batch.tokens.resize(rows);
  batch.targets.resize(rows);
  if (config.eod_mask.enabled) batch.loss_mask.resize(rows);
  return batch;
}

}  // namespace

BatchLoader::BatchLoader(const TokenDataset& dataset, const LoaderConfig& config, int64_t consumed_samples)
    : dataset_(dataset), config_(config), consumed_(consumed_samples) {
  ensure(config.shape.global_batch_size() > 0 && config.seq_length > 0 && consumed_samples >= 0 &&
             config.dp_rank >= 0 && config.dp_rank < config.shape.data_parallel_size && config.prefetch_steps > 0,
         "BatchLoader: sizes out of range");
  slots_.resize(static_cast<size_t>(config.prefetch_steps) + 1);
  for (Slot& slot : slots_) {
    for (int64_t j = 0; j < config.shape.num_micro_batches; ++j) slot.micro_batches.push_back(make_micro_batch(config));
  }
  sample_.resize(static_cast<size_t>(config.seq_length) + 1);
  thread_ = std::thread([this] { run(); });
}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  // One that has stalled may never come back: the process is about to end.
  stalled_ ? thread_.detach() : thread_.join();
}

const std::vector<MicroBatch>& BatchLoader::next_step() {
  const Stopwatch watch;
  std::unique_lock lock(mutex_);
  if (holds_current_) {
    slots_[current_].full = false;
    current_ = (current_ + 1) % slots_.size();
    holds_current_ = false;
    changed_.notify_all();
  }
  Slot& slot = slots_[current_];
  comm::RunningTime waiting;
  while (!changed_.wait_for(lock, kLook, [&slot] { return slot.full; })) {
    if (waiting.elapsed_s() < config_.deadline_s) continue;
    stalled_ = true;
    throw RunTimeError(fmt::format(
        "the data's file system has not answered for {:.1f} s (--distributed-timeout-minutes {:g}): samples from {} on",
        waiting.elapsed_s(), config_.deadline_s / 60, consumed_));
  }
  wait_s_ = watch.elapsed_s();
  // A faulty slot stays, so that asking again gives the same error.
  if (slot.error) std::rethrow_exception(slot.error);
  holds_current_ = true;
  consumed_ += config_.shape.global_batch_size();
  return slot.micro_batches;
}

void BatchLoader::run() {
  int64_t consumed = consumed_;  // read before next_step() can be called
  for (size_t at = 0;; at = (at + 1) % slots_.size()) {
    Slot& slot = slots_[at];
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this, &slot] { return stop_ || !slot.full; });
      if (stop_) return;
    }
    try {
      fill(slot, consumed);
    } catch (...) {
      slot.error = std::current_exception();
    }
    consumed += config_.shape.global_batch_size();
    const std::lock_guard lock(mutex_);
    slot.full = true;
    changed_.notify_all();
    if (slot.error) return;
  }
}

void BatchLoader::fill(Slot& slot, int64_t consumed) {
  const int64_t end = consumed + config_.shape.global_batch_size();
  if (end > dataset_.size()) {
    throw RunTimeError(
        fmt::format("the data ends: samples {} to {} are asked for, there are {}", consumed, end - 1, dataset_.size()));
  }
  for (size_t j = 0; j < slot.micro_batches.size(); ++j) {
    fill_micro_batch(slot.micro_batches[j],
                     first_sample_of(config_.shape, consumed, static_cast<int64_t>(j), config_.dp_rank));
  }
}

void BatchLoader::fill_micro_batch(MicroBatch& batch, int64_t first_sample) {
  const size_t samples = batch.sample_ids.size();
  const auto length = static_cast<size_t>(config_.seq_length);
  for (size_t i = 0; i < samples; ++i) {
    batch.sample_ids[i] = first_sample + static_cast<int64_t>(i);
    if (batch.tokens.empty()) continue;
    dataset_.sample(batch.sample_ids[i], sample_);
    for (size_t position = 0; position < length; ++position) {
      const size_t row = position * samples + i;
      batch.tokens[row] = sample_[position];
      batch.targets[row] = sample_[position + 1];
      if (!batch.loss_mask.empty()) batch.loss_mask[row] = sample_[position] == config_.eod_mask.eod ? 0.0f : 1.0f;
    }
  }
}

}  // namespace triax::io

// Feeds one data-parallel rank: a thread fills the next steps' micro-batches while this one computes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "io/data/sampler.h"
#include "io/data/token_dataset.h"

namespace triax::io {

/// One micro-batch of b samples of s tokens, laid [s, b]: row = position * b + sample; T = s * b rows.
struct MicroBatch {
  std::vector<int32_t> tokens;      ///< [T]
  std::vector<int32_t> targets;     ///< [T] the next token
  std::vector<int32_t> positions;   ///< [T] 0 .. s-1
  std::vector<int64_t> sample_ids;  ///< [b] global sample ids, the key of dropout
  std::vector<float> loss_mask;     ///< [T], or empty: all ones
};

/// Whether rows whose *input* token is the end-of-document token count in the loss (Megatron's --eod-mask-loss).
struct EodMask {
  bool enabled = false;
  int32_t eod = 0;
};

/// Every stage needs positions and sample ids, only the first and the last need tokens.
enum class LoaderTokens : uint8_t { Read, IdsOnly };

struct LoaderConfig {
  BatchShape shape;
  int64_t dp_rank = 0;
  int64_t seq_length = 0;
  EodMask eod_mask = {};
  int64_t prefetch_steps = 2;
  double deadline_s = 600;                   ///< of next_step(), for a file system that does not answer
  LoaderTokens tokens = LoaderTokens::Read;  ///< IdsOnly: tokens, targets and loss_mask stay empty
};

/// The buffers are allocated once; a steady step allocates nothing. The loader must not outlive its dataset.
class BatchLoader {
 public:
  BatchLoader(const TokenDataset& dataset, const LoaderConfig& config, int64_t consumed_samples);
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;
  BatchLoader(BatchLoader&&) = delete;
  BatchLoader& operator=(BatchLoader&&) = delete;
  ~BatchLoader();

  /// The m micro-batches of the next step, valid until the next call. Rethrows what the dataset threw while reading
  /// them; a step past the end of the dataset is a RunTimeError, and so is one that is not there within the deadline.
  const std::vector<MicroBatch>& next_step();
  /// Seconds that the last next_step() waited for data.
  double wait_s() const { return wait_s_; }
  /// Samples handed out so far, over all data-parallel ranks, including those before the start.
  int64_t consumed_samples() const { return consumed_; }

 private:
  struct Slot {
    std::vector<MicroBatch> micro_batches;
    std::exception_ptr error;
    bool full = false;
  };
  void run();
  void fill(Slot& slot, int64_t consumed);
  void fill_micro_batch(MicroBatch& batch, int64_t first_sample);

  const TokenDataset& dataset_;
  LoaderConfig config_;
  int64_t consumed_;
  double wait_s_ = 0;
  std::vector<Slot> slots_;
  std::vector<int32_t> sample_;  // [s + 1]
  size_t current_ = 0;
  bool holds_current_ = false;
  bool stop_ = false;
  bool stalled_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace triax::io

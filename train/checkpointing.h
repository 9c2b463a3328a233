// Checkpoints of one run: finds and loads the one to go on from, saves in the foreground or beside the training.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <string>

#include "base/memory.h"
#include "comm/process_grid.h"
#include "io/options/options.h"
#include "train/checkpoint_pieces.h"
#include "train/resume.h"
#include "train/save_checkpoint.h"

namespace triax::train {

/// What the run knows and the trainer does not.
struct RunState {
  int64_t consumed_valid_samples = 0;
  int64_t evaluated_at = -1;
  double learning_rate = 0;  ///< of the last step
};

/// Everything a checkpoint keeps of a run besides tensors.
io::CheckpointHeader checkpoint_header(const io::RunOptions& options, const io::WeightsHeader& weights,
                                       const Progress& progress, const RunState& run);

/// Bytes that one rank stages for --async-save: its pieces, each aligned to 64 bytes.
int64_t staging_bytes(const std::vector<io::Piece>& pieces);

class Checkpointing {
 public:
  /// `fault`: on purpose, in loading and saving, or null; must outlive this. `tokenizer`: hash and options go into
  /// every checkpoint. With --async-save takes its staging memory now.
  Checkpointing(const io::RunOptions& options, io::WeightsHeader tokenizer, Trainer& trainer, comm::ProcessGrid& grid,
                kernels::Device& device, Arena& arena, RunFault* fault = nullptr);
  ~Checkpointing();
  Checkpointing(const Checkpointing&) = delete;
  Checkpointing& operator=(const Checkpointing&) = delete;

  /// Collective; before training. Makes and locks the directory of --save, removes what killed saves left, and refuses
  /// (ConfigError) when it cannot be written or the free space does not hold one checkpoint more than are kept. Returns
  /// a line with the bytes per checkpoint; empty without --save.
  std::string prepare();
  /// Collective: weights, optimizer and progress as --load asks; weights from the seed when there is nothing to load.
  /// Returns a line that says what was done.
  std::string load_or_initialize();
  /// Of the loaded checkpoint; defaults for a new run.
  const RunState& loaded() const { return loaded_; }
  int64_t loaded_iteration() const { return loaded_iteration_; }

  /// Collective. Saves the present state; with --async-save returns once it is copied. Nothing happens without --save,
  /// or when this iteration is saved already. Returns a line that says what was done. Errors of this or an earlier
  /// save: RunTimeError on all ranks.
  std::string save(const RunState& run, const std::string& why);
  /// Throws when a save in the background has failed. Not collective.
  void check();
  /// Waits for a save in the background; throws when it failed. Returns its line.
  std::string finish();

 private:
  LoadRequest agree_on_checkpoint();
  void check_space(int64_t bytes);
  bool in_background();
  void stage(std::vector<io::Piece>& pieces);
  void start_in_background(SaveJob job);
  WithOptimizer with_optimizer() const { return options_.control.save_optim ? WithOptimizer::Yes : WithOptimizer::No; }

  io::RunOptions options_;
  io::WeightsHeader tokenizer_;
  Trainer* trainer_;
  comm::ProcessGrid* grid_;
  kernels::Device* device_;
  io::SaveHook fault_;
  RunFault* run_fault_;
  std::optional<io::DirectoryLock> lock_;
  Arena staging_arena_;  ///< pinned; of a device with memory of its own
  Buffer staging_;
  std::future<void> running_;
  bool unsettled_ = false;  ///< a save was begun that no later save() or finish() has waited for: alike on all ranks
  int64_t running_iteration_ = 0;
  RunState loaded_;
  int64_t loaded_iteration_ = 0;
  int64_t saved_at_ = -1;
};

}  // namespace triax::train

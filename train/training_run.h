// `triax train` from resolved options to the exit code: data, trainer, evaluation, saving, stopping, reporting.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "comm/mpi_session.h"
#include "train/batch_source.h"
#include "train/checkpointing.h"
#include "train/data_setup.h"
#include "train/loss_guard.h"
#include "train/run_reporter.h"
#include "train/step_profile.h"
#include "train/stop_signal.h"
#include "train/straggler_watch.h"
#include "train/trainer.h"

namespace triax::train {

enum class EvaluationSplit { Validation, Test };

struct RunRequest {
  io::ParsedOptions parsed;
  std::vector<std::string> command_line;
  EvaluationSplit split = EvaluationSplit::Validation;  ///< of --skip-train
  FlightRecorder* flight = nullptr;                     ///< null: none
  const StopSignal* stop = nullptr;                     ///< null: signals are not looked at
  /// --clock virtual: times of the resolved run's ops; empty: from --cost.
  std::function<parallel::CostTable(const io::RunOptions&)> op_costs = {};
};

/// Completes the options (vocabulary from the data's description, with --skip-train the model from the weights) and
/// validates them. The same on all ranks; throws ConfigError.
DataFacts prepare_options(RunRequest& request, int world_size);

/// A run on all ranks. Every ConfigError it throws is thrown on all ranks alike; other errors may come from one.
class TrainingRun {
 public:
  TrainingRun(comm::MpiSession& session, RunRequest request, DataFacts facts);
  ~TrainingRun();
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  /// Trains, or with --skip-train evaluates. Returns Done or Interrupted (RunTime when a signal stopped a run that
  /// saves nothing).
  ExitCode run();
  /// "tp 1 pp 0 dp 1".
  std::string place() const;

 private:
  struct Held;  // grid, device, arena, trainer: in the order of their lifetimes
  std::unique_ptr<Held> build();
  void open_directory();
  /// The flight recorder goes on in a file of the run directory.
  void start_recording();
  /// All ranks are here and all is written: the run directory gets its completion marker when `code` is Done.
  void complete(io::EndReason reason, ExitCode code);
  void prepare_checkpoints();
  void start_reporter(double peak_tflops);
  std::unique_ptr<BatchSource> source_of(const io::TokenDataset* dataset, int64_t consumed_samples) const;
  ExitCode train();
  ExitCode evaluate_only();
  void step();
  /// Names slow ranks; throws RunTimeError, on all ranks, for a loss that --check-for-spiky-loss refuses.
  void watch(const StepResult& result);
  void evaluate(const char* split, BatchSource& source);
  void evaluate_if_due();
  void evaluate_at_end();
  void save(const char* why);
  void say(const std::string& text) const;
  std::optional<ExitCode> stop_reason(double stop);
  ExitCode stopped(double stop);  ///< what was done is saved
  Wishes wishes() const;
  ExitCode finish(io::EndReason reason, ExitCode code);
  const io::RunOptions& options() const { return request_.parsed.options; }

  comm::MpiSession* session_;
  RunRequest request_;
  DataFacts facts_;
  RunFault fault_;
  Stopwatch since_start_;
  std::unique_ptr<Held> held_;
  std::unique_ptr<Checkpointing> checkpoints_;
  io::RunDirectory directory_;
  io::Datasets datasets_;
  Splits splits_;
  std::unique_ptr<BatchSource> training_, validation_;
  std::unique_ptr<RecordMaker> maker_;
  std::unique_ptr<RunReporter> reporter_;     // rank 0 only
  std::vector<int32_t> token_bytes_;          // head's first tp rank only
  std::optional<StragglerWatch> stragglers_;  // rank 0 only
  std::optional<LossGuard> loss_guard_;
  Stopwatch step_watch_;
  std::unique_ptr<StepProfile> profile_;
  RunState state_;               // of steps and of evaluations at their interval
  int64_t evaluated_at_ = -1;    // iteration
  bool evaluation_cut_ = false;  // by a wish to stop
  Wishes wished_;                // by all ranks, after the last step
  Stopwatch since_save_;
};

}  // namespace triax::train

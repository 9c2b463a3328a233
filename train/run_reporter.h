// What a run leaves behind and prints: run directory, metrics, TensorBoard, log lines, summary. Only world rank 0 makes
// one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "io/options/options.h"
#include "io/report/console.h"
#include "io/report/metrics_file.h"
#include "io/report/run_directory.h"
#include "io/report/summary.h"
#include "io/report/tensorboard.h"
#include "model/counts.h"
#include "train/communication_table.h"
#include "train/trainer.h"

namespace triax::train {

/// Turns what the trainer returns into the record that is printed and written. Pure.
class RecordMaker {
 public:
  RecordMaker(const io::RunOptions& options, double peak_tflops);
  /// step_s: time of this step on the wall, the same for all ranks up to the closing exchange.
  io::IterationRecord make(const StepResult& result, const Progress& progress, double step_s) const;

 private:
  io::RunOptions options_;
  double peak_tflops_;
  model::StepFlops flops_;
};

class RunReporter {
 public:
  /// Writes run.json and resolved.cfg. Lines of metrics past `loaded_iteration` are moved aside.
  RunReporter(const io::RunDirectory& directory, const io::ParsedOptions& parsed, const io::RunFacts& facts,
              int64_t loaded_iteration);
  void iteration(const io::IterationRecord& record);
  void evaluation(const io::EvaluationRecord& record);
  /// A line on stdout of its own.
  void line(const std::string& text);
  /// Summary on stdout and in summary.json, then a table of what was communicated.
  void finish(io::EndReason reason, const std::vector<CommunicationRow>& communication);

 private:
  io::RunDirectory directory_;
  io::MetricsFile metrics_;
  std::optional<io::EventFile> events_;
  io::IterationLog log_;
  io::Progress progress_;
  io::RunSummary summary_;
  int64_t steps_ = 0;
  double step_s_ = 0;  ///< of all steps
};

}  // namespace triax::train

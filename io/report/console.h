// Megatron-LM's log lines on stdout (public tools parse them), and a progress line on a terminal.
#pragma once

#include <optional>
#include <string>

#include "io/report/records.h"

namespace triax::io {

enum class Throughput { Hide, Show };

/// Averages over the iterations since the last line, as Megatron does. A line is due after iteration `first` (which
/// does not reset the averages), every `interval` iterations, and after the last one.
class IterationLog {
 public:
  IterationLog(int64_t first_iteration, int64_t total_iterations, int64_t interval, Throughput throughput);
  /// The line to print (without newline), if one is due.
  std::optional<std::string> add(const IterationRecord& record);

 private:
  std::string line(const IterationRecord& last) const;
  int64_t first_iteration_, total_iterations_, interval_;
  Throughput throughput_;
  int64_t count_ = 0, advanced_ = 0, skipped_ = 0, nan_ = 0;
  double loss_sum_ = 0, step_ms_sum_ = 0, tokens_sum_ = 0, tflops_ms_sum_ = 0, mfu_ms_sum_ = 0;
};

/// "[2026-08-22 15:22:22.123456]" of the local clock now.
std::string timestamp();

/// Three lines: dashes, " validation loss at iteration 1000 | lm loss value: ... | lm loss PPL: ... | ", dashes.
/// PPL = exp(min(20, loss)). bits per byte is added when known.
std::string validation_lines(const EvaluationRecord& record);

/// One carriage-return line on stderr, only when stderr is a terminal.
class Progress {
 public:
  explicit Progress(int64_t total_iterations);
  void show(const IterationRecord& record);
  /// Removes the line so that a log line can be printed.
  void clear();

 private:
  int64_t total_iterations_;
  bool terminal_ = false;
  bool shown_ = false;
};

}  // namespace triax::io

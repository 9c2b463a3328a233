// metrics.jsonl: one JSON object per iteration; floats read back to the same bits.
#pragma once

#include <fstream>
#include <string>

#include "io/report/records.h"

namespace triax::io {

/// One line without newline. Keys of DESIGN section 4 "Metric keys"; a value that is not finite is null.
std::string metrics_json(const IterationRecord& record);
/// {"iteration": .., "split": "validation", "lm_loss": .., "lm_loss_ppl": .., "bits_per_byte": ..}
std::string metrics_json(const EvaluationRecord& record);

/// Appends and flushes per line.
class MetricsFile {
 public:
  /// Opens for appending. Lines of iterations past `resume_iteration` (a restart repeats them) are moved to
  /// <path>.replaced-<n> first. Throws RunTimeError.
  explicit MetricsFile(const std::string& path, int64_t resume_iteration = 0);
  void write(const IterationRecord& record) { write_line(metrics_json(record)); }
  void write(const EvaluationRecord& record) { write_line(metrics_json(record)); }

 private:
  void write_line(const std::string& line);
  std::string path_;
  std::ofstream file_;
};

}  // namespace triax::io

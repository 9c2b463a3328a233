// The last lines of a run: median step after warm-up, tokens/s, MFU, bubble, exposed communication, peak memory.
#pragma once

#include <string>
#include <vector>

#include "io/report/records.h"

namespace triax::io {

class RunSummary {
 public:
  /// The first `warmup` iterations of this process are left out of medians (all count when fewer than 2 * warmup ran).
  explicit RunSummary(int64_t warmup = 3) : warmup_(warmup) {}
  void add(const IterationRecord& record) { records_.push_back(record); }
  /// Printable lines, one statement each, with newline.
  std::string text(EndReason reason) const;
  /// The same as JSON, for summary.json in the run directory.
  std::string json(EndReason reason) const;

 private:
  struct Medians {
    double step_ms = 0, tokens_per_s = 0, model_tflops = 0, mfu = 0, bubble = 0, exposed_ms = 0, data_wait_ms = 0;
    int64_t peak_memory = 0, counted = 0;
  };
  Medians medians() const;
  int64_t warmup_;
  std::vector<IterationRecord> records_;
};

}  // namespace triax::io

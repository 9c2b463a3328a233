// Prediction against a finished run, category by category: what `triax sim --verify RUN_DIR` prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/hardware.h"
#include "plan/prediction.h"

namespace triax::plan {

/// One line: seconds, except memory (bytes of the fullest rank, without the machine's runtime_bytes).
struct Compared {
  std::string name;
  double predicted = 0, measured = 0;
  /// Of the measured value; of the measured step where `of_step` (parts that may be near 0).
  double error = 0;
};

struct Verification {
  io::RunOptions options;          ///< of the run, resolved
  std::vector<Compared> rows;      ///< "step", "compute", ..., "memory"
  std::vector<std::string> notes;  ///< what could not be compared, and why
};

/// `run` is the directory of a run or its run.json. Reads resolved.cfg and run.json for the run, metrics.jsonl for the
/// median step after `warm_up` iterations and the peak of memory, the last trace/measured-*.json for the categories:
/// mean over pipeline positions of
///   compute    F, B, I, W, R and batches, with the collectives inside of them
///   fill, drain, between (waits for messages, time on the wire included), dp_sync, optimizer: parallel/idle.h
///   other      what the trainer does between ops; never predicted
/// from the same accounting of measured and of simulated op times. Throws RunTimeError for a directory that holds no
/// finished run, ConfigError for a run that the machine's description cannot price.
Verification verify_run(const std::string& run, const bench::Hardware& hardware, int warm_up = 3);

/// The categories of one step from its op times: name and seconds, mean over positions; they sum to the makespan.
std::vector<std::pair<std::string, double>> categories_of(const parallel::Program& program,
                                                          const std::vector<std::vector<parallel::OpTime>>& times);

}  // namespace triax::plan

// What a job will do, before it stands in a queue: layout, groups, memory, traffic of its stages by the trainer's own
// code without arithmetic, and one rank executed with small widths, to see that the program runs and that its traffic
// is the one announced.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/run_options.h"
#include "model/counts.h"
#include "plan/memory_report.h"
#include "plan/prediction.h"
#include "plan/shrink.h"

namespace triax::plan {

struct RehearsalRequest {
  io::RunOptions options;  ///< resolved for the job's ranks
  int rank = -1;           ///< to execute; -1: the first of the last pipeline stage
  int ranks_per_node = 8;
  std::optional<bench::Hardware> hardware;  ///< for the step's time and whether it fits
};

/// Tensor rank 0 of replica 0 of a pipeline position, at full width, simulated.
struct RehearsedStage {
  int position = 0, rank = 0;
  train::RehearsedStep step;
};

/// How what carries parts of the flat arrays follows the widths: payload and calls; calls alone where the arrays are
/// padded; neither where they are compressed.
enum class ArrayPayload { Exact, CallsAlone, Unknown };

struct RehearsalReport {
  RehearsalRequest request;
  int rank = 0;                          ///< executed
  std::vector<int> nodes;                ///< of each world rank
  std::vector<RehearsedStage> stages;    ///< first and last alone where all would take long
  ExactMemory memory;                    ///< of the same positions
  model::StepFlops flops, dense_flops;   ///< causal half; full squares
  std::optional<Prediction> prediction;  ///< with hardware
  train::RehearsedStep announced;        ///< the rank's step at full width, simulated
  Shrinking shrinking;
  io::RunOptions small;  ///< what was executed
  train::RehearsedStep executed;
  ArrayPayload arrays = ArrayPayload::Exact;
  Scaled scaled;                    ///< the executed rank's traffic at full width
  std::vector<std::string> faults;  ///< checks that failed
};

/// Most bytes of a rank, by the exact forecast, with what the machine's libraries take.
int64_t most_bytes(const RehearsalReport& report);
/// False where the machine is known and has less memory than that.
bool fits(const RehearsalReport& report);

/// Throws ConfigError for a rank outside the job.
RehearsalReport rehearse(const RehearsalRequest& request);

/// Compares calls and payload of every group and operation. One line per difference.
std::vector<std::string> compare_traffic(const train::StepCommunication::Entries& announced, const Scaled& scaled,
                                         ArrayPayload arrays);

std::string rehearsal_text(const RehearsalReport& report);

}  // namespace triax::plan

// What became of a point: point.json in its directory, written once, when the point has ended.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/sweep/point.h"
#include "plan/sweep/process.h"

namespace triax::plan {

enum class PointState { Missing, Done, Refused, Infeasible, OutOfMemory, TimedOut, Failed };
const char* name_of(PointState state);

struct PointRecord {
  PointState state = PointState::Missing;
  std::string reason;  ///< why it is not done; one line
  int exit_code = 0, ranks = 1, repeat = 1;
  double wall_s = 0;
  std::string mode, started, host;  ///< UTC
  std::string version, commit;
  std::vector<Setting> settings;
  std::vector<std::string> command;
  std::map<std::string, double> metrics;  ///< names with unit suffix, as in metrics.jsonl
};

/// Empty where the file is missing or torn.
std::optional<PointRecord> read_record(const std::string& directory);
/// Atomically. Throws RunTimeError.
void write_record(const std::string& directory, const PointRecord& record);

/// State and reason from how the process ended and from what it wrote to stderr.
void judge(const ProcessResult& result, const std::string& stderr_path, PointRecord& record);

/// Metrics that points of this mode may have; those of communication groups (GROUP_sent_bytes, GROUP_across_bytes,
/// GROUP_exposed_ms) come with the groups of a layout and are not among them.
std::vector<std::string> metric_names(SweepMode mode);
/// Whether a finished point may have it: one of metric_names, or a group's.
bool is_metric(const std::string& name, SweepMode mode);

/// Reads what a real, virtual or simulated point measured from the files in its directory: medians of the last steps
/// (summary.json), comm_bytes, bytes and exposed time by group, the bubble and span of a trace, or time.json.
/// Returns false where the files are not those of a finished run.
bool read_metrics(const std::string& directory, SweepMode mode, std::map<std::string, double>& metrics);

}  // namespace triax::plan

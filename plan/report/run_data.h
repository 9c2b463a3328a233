// A run as its directory tells it, finished or not: what the report draws and compares.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/run_options.h"
#include "plan/sweep/statistics.h"

namespace triax::plan {

struct RunOption {
  std::string value, origin;  ///< "default", "preset", "file", "command line", "derived"
};

struct RunEvaluation {
  double iteration = 0, loss = 0;
  std::string split;
};

/// One thing that happened, in order of iteration; -1: before the first.
struct RunEvent {
  double iteration = -1;
  std::string text;
  bool bad = false;
};

struct TrafficRow {
  std::string group, kind, operation;
  double calls = 0, sent_bytes = 0, busy_ms = 0, exposed_ms = 0;
  bool converted = false;
};

struct RunData {
  std::string directory, name;  ///< name: of the page
  // run.json
  std::string version, commit, compiler, started, model, device, program_hash, data_hash, tokenizer_hash, slurm_job_id;
  std::vector<std::string> command_line, hosts;  ///< a host per rank
  int world_size = 1;
  double parameters = 0, peak_tflops = 0;
  std::map<std::string, std::string> libraries, environment;
  std::map<std::string, RunOption> options;
  /// As the parser reads resolved.cfg, resolved; nothing where this version cannot.
  std::optional<io::RunOptions> resolved;
  // metrics.jsonl: columns of equal length, NaN where a line has no number
  std::map<std::string, std::vector<double>> columns;
  std::vector<RunEvaluation> evaluations;
  // summary.json
  std::string ended;  ///< "finished", ...; empty: there is no summary
  std::vector<TrafficRow> traffic;
  std::vector<RunEvent> events;
  std::string picture;  ///< the recorded step as SVG; empty: none
  std::string option(const std::string& option_name) const;
  size_t iterations() const;
  /// The steps that count: without the first three where there are six or more, as RunSummary.
  std::vector<double> counted(const std::string& column) const;
  /// Last value of a column that is a number; NaN without one.
  double last(const std::string& column) const;
};

/// Reads what is there; only run.json must be. Lines that are torn are left out. Throws ConfigError where `directory`
/// holds no run.
RunData read_run(const std::string& directory);

/// Replaces hosts by "host 1", ..., and drops users, paths, job ids and what the environment tells of them.
void make_anonymous(RunData& run, int number);

}  // namespace triax::plan

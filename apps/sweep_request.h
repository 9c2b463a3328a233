// What `triax sweep` is asked: axes, how the points run, where the results go; all other options are the points' own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/entry_makers.h"
#include "plan/sweep/grid.h"
#include "plan/sweep/point.h"
#include "plan/sweep/runner.h"

namespace triax::apps {

struct SweepRequest {
  std::vector<std::string> base;  ///< options of every point
  std::vector<plan::SweepAxis> axes;
  int64_t repeats = 1, jobs = 1;
  plan::SweepMode mode = plan::SweepMode::Real;
  std::string launcher = "mpiexec -n {ranks}";
  std::string out;  ///< directory
  double point_timeout_s = 0;
  bool retry_failed = false, collect = false, submit = false, dry_run = false;
  int64_t only_point = -1;  ///< -1: all
  std::vector<std::string> sbatch;
  std::string x, y;  ///< of the figure; empty: first axis, the mode's usual metric
  Format format = Format::Table;
  bool csv_plain = false, describe = false, help = false;
  std::string ablation;  ///< name; empty: a grid
  bool list_ablations = false;
  std::string paper;   ///< --paper: names, all, fit or list; empty: no paper
  std::string papers;  ///< directory with published rows
  bool paper_rows = false, real = false;

  plan::RunnerOptions runner_options() const;
};

/// Options of the command itself, which write into `request`; it must outlive them.
std::vector<io::OptionEntry> sweep_entries(SweepRequest& request);

/// Throws ConfigError with all faults: unknown options, options that cannot be swept, malformed axes.
void read_sweep_request(const std::vector<std::string>& args, SweepRequest& request);

}  // namespace triax::apps

// One point of a sweep: its arguments, the ranks it needs, its name, the command that runs it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/run_options.h"
#include "plan/sweep/grid.h"

namespace triax::plan {

/// Real: triax train. Virtual: triax train --clock virtual. Simulated, without ranks: triax sim where --hw names a
/// machine, else triax program time.
enum class SweepMode { Real, Virtual, Simulated };
const char* name_of(SweepMode mode);

/// As asked. `arguments` are options of train, and three that have a meaning only before a run: data-parallel-size,
/// world-size (default: tp cp pp, one replica), num-microbatches (gives global-batch-size = m b d).
struct PointRequest {
  SweepMode mode = SweepMode::Real;
  std::vector<std::string> arguments;
  std::vector<Setting> settings;  ///< what the sweep varies: columns of its results
  int repeat = 1;                 ///< from 1
};

/// Resolved. A point that the trainer would refuse has the refusal's text and no command.
struct Point {
  PointRequest request;
  std::string name;     ///< of its directory: settings, a hash of all arguments, the repeat; the same on every call
  std::string refusal;  ///< of the options, empty: none
  int ranks = 1;        ///< of the run, started or simulated
  /// That the machine has to run at once: simulated points are one.
  int processes() const { return request.mode == SweepMode::Simulated ? 1 : ranks; }
  std::optional<io::RunOptions> resolved;  ///< real and virtual points that are not refused
  std::vector<std::string> arguments;      ///< of the subcommand, without the run directory
};

/// The same validation as train's (io::resolve). Throws nothing for a point: refusals are rows.
Point make_point(const PointRequest& request);

/// The words to execute; {ranks} in the launcher's words becomes the number of ranks. `directory` is the point's.
std::vector<std::string> command_of(const Point& point, const std::vector<std::string>& launcher,
                                    const std::string& triax, const std::string& directory);

/// "pipeline-schedule=zb-h1 num-microbatches=4", "all defaults" without settings.
std::string text_of(const std::vector<Setting>& settings);

/// Arguments that give `settings` on top of `base`: "--name value" each; "-" leaves the option out.
std::vector<std::string> with_settings(std::vector<std::string> base, const std::vector<Setting>& settings);

}  // namespace triax::plan

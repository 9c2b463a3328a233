// Runs the points of a sweep, one or several at a time, each in a directory of its own, and goes on where an earlier
// call was stopped.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/sweep/point.h"
#include "plan/sweep/record.h"

namespace triax::plan {

/// What is done with points that have ended without success in an earlier call.
enum class Retry { No, Failed };
/// Collect starts nothing: it reads what is there.
enum class RunPoints { Missing, None };

struct RunnerOptions {
  std::string directory;              ///< of the sweep; points lie in directory/points/NAME
  std::vector<std::string> launcher;  ///< words; {ranks} is replaced
  std::string triax;                  ///< path of the binary
  double point_timeout_s = 0;         ///< 0: none
  Retry retry = Retry::No;
  RunPoints run = RunPoints::Missing;
  int jobs = 1;  ///< points at a time
};

/// Told when a point has ended now, one call at a time; `index` from 0.
using PointObserver = std::function<void(size_t index, const Point& point, const PointRecord& record)>;

struct SweepRun {
  std::vector<PointRecord> records;  ///< one per point, in their order; Missing where a stop came before
  int started = 0;                   ///< points that this call ran
  bool interrupted = false;
};

/// A directory without point.json is of a point that was cut off: where its run had finished, its numbers are read,
/// else it is renamed to NAME.interrupted-N and the point runs again. Failed points that are tried again leave
/// NAME.failed-N. A point that another process is running is left alone, and is missing. Throws RunTimeError where the
/// directory cannot be written or the launcher cannot be started.
SweepRun run_points(const std::vector<Point>& points, const RunnerOptions& options, const PointObserver& observer);

}  // namespace triax::plan

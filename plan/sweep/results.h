// Rows of a sweep: repeats of a point together, each metric with its confidence interval.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/sweep/record.h"
#include "plan/sweep/statistics.h"

namespace triax::plan {

struct SweepRow {
  std::vector<Setting> settings;
  std::string mode;
  int ranks = 1;
  int repeats = 0, done = 0;
  PointState state = PointState::Done;  ///< of the worst repeat
  std::string reason = {};              ///< of the first repeat that is not done
  std::map<std::string, Estimate> metrics = {};
  /// NaN when no repeat has it.
  double mean(const std::string& metric) const;
};

/// One row per combination of settings and mode, in the order of their first record.
std::vector<SweepRow> rows_of(const std::vector<PointRecord>& records);

/// Columns of every table: option names that some row has, in order of appearance.
std::vector<std::string> setting_names(const std::vector<SweepRow>& rows);

/// A row per point: settings, ranks, repeats, done, state, reason, then mean and half width of the 95 % interval of
/// every metric (METRIC, METRIC_ci95). `head` stands before it as '# ' lines.
std::string rows_csv(const std::vector<SweepRow>& rows, const std::vector<std::string>& head);
/// A row per run: settings, repeat, state, reason, exit code, wall_s, host, version, commit, metrics.
std::string runs_csv(const std::vector<PointRecord>& records, const std::vector<std::string>& head);
std::string rows_json(const std::vector<SweepRow>& rows);
/// For people: settings, state, the usual metrics with +-.
std::string rows_table(const std::vector<SweepRow>& rows);

/// Quoted where it holds a comma, a quote or a line break.
std::string csv_cell(const std::string& text);

}  // namespace triax::plan

// What every kind of sweep (a grid, an ablation, a paper's experiment) does with its points.
#pragma once

#include <string>
#include <vector>

#include "apps/sweep_request.h"
#include "io/plot/figure.h"
#include "plan/sweep/results.h"

namespace triax::apps {

/// --dry-run: the points and their commands on stdout.
void list_points(const std::vector<plan::Point>& points, const plan::RunnerOptions& options);

/// Runs the points, each told on stderr as it ends.
plan::SweepRun run_said(const std::vector<plan::Point>& points, const plan::RunnerOptions& options);

/// 0 where at least one point is done; else what most of them ended in.
int exit_code_of(const plan::SweepRun& run);

/// The head of every file that this command writes.
std::vector<std::string> file_head(const SweepRequest& request, const std::vector<std::string>& args);

/// results.csv and runs.csv of the sweep's directory; with a format also to stdout.
void write_tables(const SweepRequest& request, const plan::SweepRun& run, const std::vector<plan::SweepRow>& rows,
                  const std::vector<std::string>& head);

void say_figure(const io::FigureFiles& files);

}  // namespace triax::apps

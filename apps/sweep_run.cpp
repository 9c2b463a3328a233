#include "apps/sweep_run.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "apps/program_request.h"
#include "base/error.h"
#include "plan/sweep/environment.h"
#include "plan/sweep/submit.h"

namespace triax::apps {

void list_points(const std::vector<plan::Point>& points, const plan::RunnerOptions& options) {
  for (size_t i = 0; i < points.size(); ++i) {
    const plan::Point& point = points[i];
    fmt::print("{:>4} {} r{}: ", i, plan::text_of(point.request.settings), point.request.repeat);
    if (!point.refusal.empty()) {
      fmt::print("refused: {}\n", point.refusal);
      continue;
    }
    const std::string directory = options.directory + "/points/" + point.name;
    std::string command;
    for (const std::string& word : plan::command_of(point, options.launcher, "triax", directory)) {
      command += fmt::format("{}{}", command.empty() ? "" : " ", plan::shell_word(word));
    }
    fmt::print("{}\n", command);
  }
}

int exit_code_of(const plan::SweepRun& run) {
  if (run.interrupted) return static_cast<int>(ExitCode::Interrupted);
  const auto all = [&run](plan::PointState state) {
    return std::all_of(run.records.begin(), run.records.end(), [state](const auto& r) { return r.state == state; });
  };
  for (const plan::PointRecord& record : run.records) {
    if (record.state == plan::PointState::Done) return 0;
  }
  if (all(plan::PointState::Missing)) return 0;  // --collect, or run by others
  if (all(plan::PointState::Refused)) return static_cast<int>(ExitCode::Usage);
  return static_cast<int>(all(plan::PointState::Infeasible) ? ExitCode::Infeasible : ExitCode::RunTime);
}

std::vector<std::string> file_head(const SweepRequest& r, const std::vector<std::string>& args) {
  if (r.csv_plain) return {};
  std::vector<std::string> words = {"triax", "sweep"};
  words.insert(words.end(), args.begin(), args.end());
  return plan::provenance(words);
}

void say_figure(const io::FigureFiles& files) {
  spdlog::info("figure {}", fmt::join(files.paths, " "));
  if (!files.missing.empty()) spdlog::info("no .svg and .pdf: {}", files.missing);
}

void write_tables(const SweepRequest& r, const plan::SweepRun& run, const std::vector<plan::SweepRow>& rows,
                  const std::vector<std::string>& head) {
  write_file(r.out + "/results.csv", plan::rows_csv(rows, head));
  write_file(r.out + "/runs.csv", plan::runs_csv(run.records, head));
  if (r.format == Format::Table) fmt::print("{}", plan::rows_table(rows));
  if (r.format == Format::Csv) fmt::print("{}", plan::rows_csv(rows, head));
  if (r.format == Format::Json) fmt::print("{}", plan::rows_json(rows));
  spdlog::info("results {0}/results.csv {0}/runs.csv", r.out);
}

namespace {

/// Points at a time that do not take each other's cores. Throws ConfigError.
void check_jobs(const std::vector<plan::Point>& points, const plan::RunnerOptions& options) {
  if (options.jobs == 1 || options.run == plan::RunPoints::None) return;
  int most = 1;
  for (const plan::Point& point : points) {
    if (point.refusal.empty()) most = std::max(most, point.processes());
  }
  const int cores = plan::host_facts().cores;
  if (most * options.jobs <= cores) return;
  throw ConfigError(
      fmt::format("--jobs {}: points of {} rank{} on {} cores: {}; more would measure each other", options.jobs, most,
                  most == 1 ? "" : "s", cores,
                  most <= cores ? fmt::format("at most {} at a time", cores / most) : std::string("one at a time")));
}

}  // namespace

plan::SweepRun run_said(const std::vector<plan::Point>& points, const plan::RunnerOptions& options) {
  const auto say = [&points](size_t i, const plan::Point& point, const plan::PointRecord& record) {
    spdlog::info("[{}/{}] {} r{}: {}{} ({:.1f} s)", i + 1, points.size(), plan::text_of(point.request.settings),
                 point.request.repeat, plan::name_of(record.state),
                 record.reason.empty() ? "" : fmt::format(": {}", record.reason), record.wall_s);
  };
  check_jobs(points, options);
  const plan::SweepRun run = plan::run_points(points, options, say);
  if (run.interrupted) spdlog::info("stopped; the same command does what is missing");
  return run;
}

}  // namespace triax::apps

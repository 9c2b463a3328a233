// `triax sweep`: a grid of runs, real, on the virtual clock or simulated, with its table and figure.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>

#include "apps/commands.h"
#include "apps/entry_makers.h"
#include "apps/program_request.h"
#include "apps/sweep_paper.h"
#include "apps/sweep_request.h"
#include "apps/sweep_run.h"
#include "base/error.h"
#include "plan/ablation/ablation.h"
#include "plan/sweep/results.h"
#include "plan/sweep/submit.h"
#include "plan/sweep/sweep_figure.h"

namespace triax::apps {
namespace {

constexpr const char* kSweepUsage =
    "usage: triax sweep [options of every point] --grid OPTION=A,B,... [--grid ...] [--repeats N]\n"
    "       triax sweep --ablation NAME          triax sweep --list-ablations\n"
    "       triax sweep --paper NAME,...|all|fit|list [--papers DIR] [--real]\n\n"
    "Runs every combination, each in a directory of its own, and writes results.csv, runs.csv and a figure. The same\n"
    "command again does what is missing. --paper sets published measurements beside predictions, and with --real "
    "beside\n"
    "a small run of the same experiment here. See docs/experiments.md.\n\n";

constexpr const char* kSweepDescription =
    "DIR/points/NAME-HASH-rN/   a point: run directory, stdout.txt, stderr.txt, point.json (state, reason, metrics)\n"
    "DIR/results.csv            a row per point: settings, ranks, repeats, done, state, reason, METRIC, METRIC_ci95\n"
    "DIR/runs.csv               a row per run: settings, repeat, state, reason, exit code, wall_s, host, metrics\n"
    "DIR/sweep.{csv,gp,svg,pdf} the figure\n\n"
    "state      done, refused (exit code 2), infeasible (3), out of memory, timed out, failed, missing\n"
    "METRIC     mean over repeats; METRIC_ci95: half width of the 95 % interval, t(n - 1) s / sqrt(n)\n"
    "step_ms, tokens_per_s, bubble_fraction, ...   of a run: medians of its steps after warm-up (summary.json)\n"
    "comm_bytes                 bytes sent per step, sum over ranks\n"
    "GROUP_sent_bytes, GROUP_exposed_ms   per step, mean of all ranks, of the groups tp, pp, dp, ...; tp_attention,\n"
    "                           tp_mlp, ... are parts of tp\n"
    "trace_bubble_fraction, trace_span_s  of the run's one recorded step\n"
    "span, makespan, formula_span, formula_bubble_fraction   simulated: in units of --cost, see triax program time\n";

std::string sweep_help(SweepRequest& request) {
  return kSweepUsage + help_lines(sweep_entries(request)) +
         "\nAll options of 'triax train --help', and --data-parallel-size, --world-size, --num-microbatches, --hw.\n";
}

std::vector<plan::Point> points_of(const SweepRequest& r) {
  std::vector<plan::Point> points;
  for (const std::vector<plan::Setting>& settings : plan::combinations(r.axes)) {
    for (int repeat = 1; repeat <= r.repeats; ++repeat) {
      points.push_back(plan::make_point({r.mode, r.base, settings, repeat}));
    }
  }
  return points;
}

std::string default_directory(const SweepRequest& r) {
  const plan::Point base = plan::make_point({r.mode, r.base, {}, 1});
  return fmt::format("sweeps/{}-{}", plan::name_of(r.mode), base.name.substr(5, 8));  // "base-HASH-r1"
}

int hand_to_slurm(const SweepRequest& r, const std::vector<plan::Point>& points, const std::vector<std::string>& args) {
  plan::ArrayJob job;
  job.name = "triax-sweep";
  job.directory = r.out;
  job.point_timeout_s = r.point_timeout_s;
  job.sbatch_options = r.sbatch;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto record = plan::read_record(r.out + "/points/" + points[i].name);
    const bool missing = !record || (record->state != plan::PointState::Done && r.retry_failed);
    if (!missing || !points[i].refusal.empty()) continue;  // refusals become rows without a job
    job.points.push_back(static_cast<int>(i));
    job.tasks = std::max(job.tasks, points[i].processes());
  }
  if (job.points.empty()) return fmt::print("nothing is missing; --collect writes the results\n"), 0;
  job.command = {plan::own_binary(), "sweep"};
  for (const std::string& arg : args) {
    if (arg != "--submit" && arg != "--submit=true") job.command.push_back(arg);
  }
  if (std::none_of(args.begin(), args.end(),
                   [](const std::string& a) { return a == "--out" || a.starts_with("--out="); })) {
    job.command.insert(job.command.end(), {"--out", r.out});
  }
  fmt::print(
      "{}\n{} points, {} ranks at most; when they have ended, the same command with --collect instead of --submit\n",
      plan::submit(job), job.points.size(), job.tasks);
  return 0;
}

void write_results(const SweepRequest& r, const plan::SweepRun& run, const std::vector<std::string>& args) {
  const std::vector<std::string> head = file_head(r, args);
  const std::vector<plan::SweepRow> rows = plan::rows_of(run.records);
  write_tables(r, run, rows, head);
  // On the virtual clock tokens/s is that of this machine; without a machine the simulator has none.
  const auto has_speed = [](const plan::SweepRow& row) { return row.metrics.contains("tokens_per_s"); };
  const bool speed = r.mode != plan::SweepMode::Virtual && std::any_of(rows.begin(), rows.end(), has_speed);
  const char* usual = speed ? "tokens_per_s" : "bubble_fraction";
  if (const auto figure = plan::figure_of(rows, r.x, r.y.empty() ? usual : r.y)) {
    say_figure(io::write_figure(r.out, *figure, head));
  }
}

/// The figures of a built-in experiment and what they show, also in result.txt.
void conclude(const SweepRequest& r, const plan::Ablation& ablation, const plan::AblationData& data,
              const std::vector<std::string>& head) {
  const plan::AblationResult result = ablation.conclude(data);
  for (const io::Figure& figure : result.figures) say_figure(io::write_figure(r.out, figure, head));
  for (const io::HeatMap& map : result.maps) say_figure(io::write_figure(r.out, map, head));
  std::string text = fmt::format("{}: {}\ntheory: {}\n", ablation.name, ablation.question, ablation.theory);
  for (const std::string& line : result.lines) text += line + "\n";
  write_file(r.out + "/result.txt", text);
  if (r.format == Format::Table) fmt::print("\n{}", text);
}

int run_ablation(SweepRequest& r, const std::vector<std::string>& args) {
  const plan::Ablation& ablation = plan::ablation_named(r.ablation);
  if (!r.axes.empty()) throw ConfigError(fmt::format("--ablation {}: has its own axes; leave --grid out", r.ablation));
  if (r.submit || r.only_point >= 0) {
    throw ConfigError(fmt::format("--ablation {}: runs in this allocation, not as an array", r.ablation));
  }
  if (r.out.empty()) r.out = fmt::format("sweeps/{}", ablation.name);
  std::vector<plan::Point> points;
  for (plan::PointRequest request : ablation.points()) {
    request.arguments.insert(request.arguments.end(), r.base.begin(), r.base.end());
    for (request.repeat = 1; request.repeat <= r.repeats; ++request.repeat) points.push_back(plan::make_point(request));
  }
  const plan::RunnerOptions options = r.runner_options();
  if (r.dry_run) return list_points(points, options), 0;
  const plan::SweepRun run = run_said(points, options);
  if (run.interrupted) return exit_code_of(run);
  const std::vector<std::string> head = file_head(r, args);
  write_tables(r, run, plan::rows_of(run.records), head);
  conclude(r, ablation, plan::AblationData(points, run.records), head);
  return exit_code_of(run);
}

int run_grid(SweepRequest& r, const std::vector<std::string>& args) {
  if (r.axes.empty() && r.base.empty())
    throw ConfigError("sweep: needs --grid OPTION=A,B,... and the options of the points; see --help");
  if (r.out.empty()) r.out = default_directory(r);
  std::vector<plan::Point> points = points_of(r);
  const plan::RunnerOptions options = r.runner_options();
  if (r.dry_run) return list_points(points, options), 0;
  if (r.submit) return hand_to_slurm(r, points, args);
  if (r.only_point >= static_cast<int64_t>(points.size())) {
    throw ConfigError(fmt::format("--only-point {}: must be from 0 to {}", r.only_point, points.size() - 1));
  }
  if (r.only_point >= 0) points = {points[static_cast<size_t>(r.only_point)]};
  const plan::SweepRun run = run_said(points, options);
  if (r.only_point < 0) write_results(r, run, args);
  return exit_code_of(run);
}

}  // namespace

int sweep_command(const std::vector<std::string>& args) {
  SweepRequest request;
  read_sweep_request(args, request);
  if (request.help || args.empty()) {
    const std::string text = sweep_help(request);
    fmt::print(args.empty() ? stderr : stdout, "{}", text);
    return args.empty() ? static_cast<int>(ExitCode::Usage) : 0;
  }
  if (!request.paper.empty()) return sweep_paper(request, args);
  if (request.describe) return fmt::print("{}", kSweepDescription), 0;
  if (request.list_ablations) return fmt::print("{}", plan::list_ablations()), 0;
  return request.ablation.empty() ? run_grid(request, args) : run_ablation(request, args);
}

}  // namespace triax::apps

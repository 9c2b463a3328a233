#include "apps/plan_try.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/plan_emit.h"
#include "apps/program_request.h"
#include "base/error.h"
#include "base/median.h"
#include "plan/sweep/process.h"

namespace triax::apps {
namespace {

namespace fs = std::filesystem;

/// Steps of a trial, and those that do not count: the first pages memory in.
constexpr int kSteps = 20, kWarmUp = 5;
constexpr double kTimeout_s = 900;

struct Trial {
  double step_s = 0;  ///< median of the counted steps; 0: failed
  std::string fault;
};

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

double median_step(const std::string& metrics) {
  std::ifstream file(metrics);
  std::vector<double> steps;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("step_ms")) steps.push_back(json["step_ms"].get<double>() * 1e-3);
  }
  if (steps.size() <= kWarmUp) return 0;
  steps.erase(steps.begin(), steps.begin() + kWarmUp);
  return median(std::move(steps));
}

/// Last line of a file, which says why a run ended.
std::string last_line(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

/// A trial is no part of the user's run: it neither goes on from its checkpoints nor writes among its files.
plan::Choice apart_from_the_run(plan::Choice choice) {
  io::RunControl& control = choice.options.control;
  const io::RunControl defaults;
  control.save = control.load = control.metrics_file = {};
  control.save_interval = defaults.save_interval;
  control.keep_latest = defaults.keep_latest;
  control.save_retain_interval = defaults.save_retain_interval;
  control.async_save = defaults.async_save;
  control.ckpt_writers_per_node = defaults.ckpt_writers_per_node;
  control.ckpt_step = defaults.ckpt_step;
  control.use_checkpoint_args = defaults.use_checkpoint_args;
  control.exit_on_missing_checkpoint = defaults.exit_on_missing_checkpoint;
  return choice;
}

Trial run(const PlanRequest& r, const PlanAnswer& a, const plan::Choice& choice, const std::string& directory) {
  fs::create_directories(directory);
  write_file(directory + "/run.cfg", run_cfg(apart_from_the_run(choice)));
  plan::ProcessRequest process;
  process.command = plan::split_command(replaced(r.launcher, "{ranks}", std::to_string(a.question.devices)));
  for (const std::string& word :
       {plan::own_binary(), std::string("train"), std::string("--config"), directory + "/run.cfg",
        std::string("--run-dir"), directory + "/run", std::string("--train-iters"), std::to_string(kSteps),
        std::string("--eval-iters"), std::string("0"), std::string("--no-tensorboard")}) {
    process.command.push_back(word);
  }
  const io::DataOptions& data = choice.options.data;
  if (data.data_path.empty() && data.train_data_path.empty() && !data.mock_data)
    process.command.push_back("--mock-data");
  process.stdout_path = directory + "/stdout";
  process.stderr_path = directory + "/stderr";
  process.timeout_s = kTimeout_s;
  const plan::ProcessResult result = run_process(process);
  Trial trial;
  if (result.interrupted) throw RunTimeError("stopped by a signal");
  if (result.timed_out) trial.fault = fmt::format("took more than {} s", kTimeout_s);
  if (trial.fault.empty() && result.exit_code != 0) {
    trial.fault = fmt::format("exit code {}: {}", result.exit_code, last_line(process.stderr_path));
  }
  if (trial.fault.empty()) trial.step_s = median_step(directory + "/run/metrics.jsonl");
  if (trial.fault.empty() && trial.step_s == 0) trial.fault = "wrote no steps: " + directory;
  return trial;
}

}  // namespace

int try_plan(const PlanRequest& r, const PlanAnswer& a) {
  const std::string root = r.emit.empty() ? fmt::format("runs/plan-{}", std::time(nullptr)) : r.emit;
  const size_t count = std::min<size_t>(static_cast<size_t>(r.tried), a.result.choices.size());
  fmt::print("\n{} steps of each, median after {}; predicted beside measured ({})\n", kSteps, kWarmUp, root);
  fmt::print("{:>3}  {:>10}  {:>10}  {:>7}  layout\n", "", "predicted", "measured", "error");
  double sum = 0, fastest = 0;
  int good = 0;
  size_t winner = 0;
  for (size_t i = 0; i < count; ++i) {
    const plan::Choice& choice = a.result.choices[i];
    const Trial trial = run(r, a, choice, fmt::format("{}/try-{}", root, i + 1));
    if (!trial.fault.empty()) {
      fmt::print("{:>3}  {:>10.5g}  {:>10}  {:>7}  {}: {}\n", i + 1, choice.step_s() * 1e3, "", "",
                 text_of(choice.layout), trial.fault);
      continue;
    }
    const double error = choice.step_s() / trial.step_s - 1;
    fmt::print("{:>3}  {:>10.5g}  {:>10.5g}  {:>+6.1f}%  {}\n", i + 1, choice.step_s() * 1e3, trial.step_s * 1e3,
               100 * error, text_of(choice.layout));
    sum += std::abs(error);
    if (good++ == 0 || trial.step_s < fastest) {
      fastest = trial.step_s;
      winner = i;
    }
  }
  if (good == 0) return static_cast<int>(ExitCode::RunTime);
  fmt::print("mean error {:.1f} % over {}; measured fastest: {} ({})\n", 100 * sum / good, good, winner + 1,
             text_of(a.result.choices[winner].layout));
  return 0;
}

}  // namespace triax::apps

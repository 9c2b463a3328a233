#include "plan/report/parts.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <map>

#include "base/version.h"
#include "plan/report/page.h"
#include "plan/sweep/submit.h"

namespace triax::plan {

using io::escaped;
using io::NumberForm;

const std::vector<CurveKind>& curve_kinds() {
  static const std::vector<CurveKind> kinds = {
      {"lm_loss", "Loss", "nats per token", NumberForm::Plain, false, true},
      {"grad_norm", "Gradient norm", "before clipping", NumberForm::Plain, true, true},
      {"learning_rate", "Learning rate", "", NumberForm::Plain, true},
      {"step_ms", "Step time", "ms, slowest rank", NumberForm::Plain, true, true},
      {"tokens_per_s", "Tokens per second", "all ranks", NumberForm::Plain, true, true},
      {"mfu", "MFU", "share of peak", NumberForm::Percent, true, true, true},
      {"bubble_fraction", "Pipeline bubble", "share of total", NumberForm::Percent, true, true, true},
      {"exposed_comm_ms", "Exposed communication", "ms, slowest rank", NumberForm::Plain, true, true, true},
      {"memory_bytes", "Live memory at the end of a step", "fullest rank", NumberForm::Bytes, true, false, true},
      {"data_wait_ms", "Waiting for data", "ms", NumberForm::Plain, true, true, true},
      {"loss_scale", "Loss scale", "", NumberForm::Plain, true, false, true},
      {"params_norm", "Norm of the parameters", "", NumberForm::Plain, false},
  };
  return kinds;
}

std::string sentence_of(const RunData& run) {
  std::string text = run.model.empty() ? "model" : run.model;
  if (run.parameters > 0) text += fmt::format(", {} parameters", io::short_number(run.parameters, NumberForm::Plain));
  text += fmt::format(", on {} {}", run.world_size, run.world_size == 1 ? "rank" : "ranks");
  if (!run.resolved) return text;
  const io::RunOptions& o = *run.resolved;
  const comm::GridShape& grid = o.parallel.grid;
  text += fmt::format(": tp {}, pp {}, dp {}", grid.tensor, grid.pipeline, grid.data);
  if (o.parallel.zero_stage > 0) text += fmt::format(", ZeRO {}", o.parallel.zero_stage);
  if (grid.pipeline > 1 && !run.option("pipeline-schedule").empty())
    text += fmt::format("; {}", run.option("pipeline-schedule"));
  return text + fmt::format("; {} micro-batches of {} x {} tokens; {}", o.batch.num_micro_batches,
                            o.batch.micro_batch_size, o.model.seq_length,
                            name_of(io::compute_dtype(o.control.precision)));
}

bool is_constant(const io::Chart& chart) {
  double first = std::numeric_limits<double>::quiet_NaN();
  for (const io::ChartSeries& series : chart.series) {
    for (const double value : series.y) {
      if (!std::isfinite(value)) continue;
      if (std::isfinite(first) && value != first) return false;
      first = value;
    }
  }
  return true;
}

double maximum(const RunData& run, const std::string& column) {
  double most = std::numeric_limits<double>::quiet_NaN();
  const auto found = run.columns.find(column);
  if (found == run.columns.end()) return most;
  for (const double value : found->second) {
    if (std::isfinite(value) && !(value <= most)) most = value;
  }
  return most;
}

std::string environment_list(const RunData& run) {
  std::map<std::string, int> hosts;
  for (const std::string& host : run.hosts) ++hosts[host];
  std::string host_text;
  for (const auto& [host, ranks] : hosts) {
    host_text += fmt::format("{}{} ({} {})", host_text.empty() ? "" : ", ", host, ranks, ranks == 1 ? "rank" : "ranks");
  }
  std::string text = "<dl>\n";
  const auto row = [&text](const std::string& name, const std::string& value) {
    if (!value.empty()) text += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value));
  };
  row("Triax", fmt::format("{} ({})", run.version, run.commit));
  row("started", run.started);
  row("hosts", host_text);
  row("device", run.device);
  row("Slurm job", run.slurm_job_id);
  row("program", run.program_hash);
  row("data", run.data_hash);
  row("tokenizer", run.tokenizer_hash);
  for (const auto& [name, value] : run.libraries) {
    if (name != "version" && name != "commit") row(name, value);
  }
  for (const auto& [name, value] : run.environment) row(name, value);
  return text + "</dl>\n";
}

std::string repeat_text(const RunData& run) {
  std::string words;
  for (const std::string& word : run.command_line) {
    words += fmt::format("{}{}", words.empty() ? "" : " ", shell_word(word));
  }
  const std::string command = fmt::format("<pre>mpiexec -n {} {}</pre>\n", run.world_size, escaped(words));
  if (run.directory.empty()) return command;
  return command + fmt::format(
                       "<p class=\"note\">Or, with every option as it was resolved: <code>mpiexec -n {} triax "
                       "train --config {}/resolved.cfg</code></p>\n",
                       run.world_size, escaped(run.directory));
}

std::string footer() {
  return fmt::format(
      "<p class=\"note\" style=\"margin-top:44px\">Made by triax report, Triax {} ({}), {:%Y-%m-%d}. Medians "
      "and intervals leave out the first three steps. Intervals are 95 %, Student's t; steps of one run "
      "follow each other and are not independent, so theirs are too narrow: repeats of a run are better.</p>\n",
      build_info().version, build_info().commit, fmt::gmtime(std::time(nullptr)));
}

}  // namespace triax::plan

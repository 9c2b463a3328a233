#include "apps/sweep_request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "io/options/given.h"
#include "plan/sweep/record.h"

namespace triax::apps {
namespace {

using io::OptionEntry;
using io::ValueKind;

OptionEntry list_entry(std::string name, std::string value_name, std::string help,
                       std::function<void(const std::string&)> take) {
  OptionEntry entry{
      .name = std::move(name), .kind = ValueKind::List, .value_name = std::move(value_name), .help = std::move(help)};
  entry.set = [take](io::RunOptions&, const std::vector<std::string>& values) -> std::string {
    for (const std::string& value : values) take(value);
    return {};
  };
  return entry;
}

OptionEntry mode_entry(SweepRequest& r) {
  return text_entry("mode", "real|virtual|simulated",
                    "real: triax train; virtual: the same on the virtual clock (--cost); simulated: triax sim with "
                    "--hw, else triax program time "
                    "(--cost), no ranks",
                    [&r](const std::string& text) -> std::string {
                      using plan::SweepMode;
                      for (const SweepMode mode : {SweepMode::Real, SweepMode::Virtual, SweepMode::Simulated}) {
                        if (text != plan::name_of(mode)) continue;
                        r.mode = mode;
                        return {};
                      }
                      return "must be real, virtual or simulated";
                    });
}

OptionEntry timeout_entry(SweepRequest& r) {
  return text_entry("point-timeout", "SECONDS", "a point that takes longer is stopped and is a row with that reason",
                    [&r](const std::string& text) -> std::string {
                      const std::optional<double> value = io::parse_real(text);
                      if (!value || *value <= 0) return "must be a number of seconds above 0";
                      r.point_timeout_s = *value;
                      return {};
                    });
}

// Layout options that have a meaning only before a run (plan/sweep/point.h): handed on to the points.
std::vector<OptionEntry> point_layout_entries() {
  const auto entry = [](const char* name, const char* help) {
    return text_entry(name, "N", help, [](const std::string&) { return std::string(); });
  };
  return {entry("data-parallel-size", "replicas d of a point; default 1"),
          entry("world-size", "ranks of a point; gives d as ranks / (tp pp)"),
          entry("num-microbatches", "micro-batches m of a step and replica; gives --global-batch-size"),
          entry("hw", "--mode simulated: machine, a name or hw.json; the point is then one of triax sim")};
}

std::vector<OptionEntry> figure_entries(SweepRequest& r) {
  return {
      text_entry("x", "OPTION", "axis of the figure; default the first with several values",
                 [&r](const std::string& text) { return r.x = text, std::string(); }),
      text_entry("y", "METRIC", "metric of the figure; default tokens_per_s, or bubble_fraction without a real clock",
                 [&r](const std::string& text) { return r.y = text, std::string(); }),
      format_entry(r.format),
      switch_entry("csv-plain", "no '# ' lines at the head of CSV files", r.csv_plain),
      switch_entry("describe", "explains columns and files", r.describe),
  };
}

std::vector<OptionEntry> paper_entries(SweepRequest& r) {
  return {
      text_entry("paper", "NAME,...|all|fit|list",
                 "published measurements beside predictions, with the error of each; all: the summaries, fit: the "
                 "fit of the constants again, list: the names",
                 [&r](const std::string& text) { return r.paper = text, std::string(); }),
      text_entry("papers", "DIR", "--paper: CSV files with further published rows; else TRIAX_PAPERS names it",
                 [&r](const std::string& text) -> std::string {
                   if (!std::filesystem::is_directory(text)) return "must be a directory";
                   r.papers = text;
                   return {};
                 }),
      switch_entry("rows", "--paper all: every row too", r.paper_rows),
      switch_entry("real", "--paper NAME: also runs the experiment here, made small, and compares the orders", r.real)};
}

/// What the figure shows must exist before the first point runs, not after the last.
void check_figure(const SweepRequest& r, std::vector<std::string>& faults) {
  if (!r.ablation.empty() || !r.paper.empty()) {
    const std::string form = r.paper.empty() ? "--ablation " + r.ablation : "--paper " + r.paper;
    if (!r.x.empty()) faults.push_back(fmt::format("--x {}: {} has its own figures; leave it out", r.x, form));
    if (!r.y.empty()) faults.push_back(fmt::format("--y {}: {} has its own figures; leave it out", r.y, form));
    return;
  }
  std::vector<std::string> axes;
  for (const plan::SweepAxis& axis : r.axes) axes.insert(axes.end(), axis.names.begin(), axis.names.end());
  if (!r.x.empty() && std::ranges::find(axes, r.x) == axes.end()) {
    faults.push_back(fmt::format("--x {}: is no axis of the sweep; must be one of {}", r.x, fmt::join(axes, ", ")));
  }
  if (r.y.empty() || plan::is_metric(r.y, r.mode)) return;
  const std::vector<std::string> names = plan::metric_names(r.mode);
  const std::string nearest = io::nearest_name(r.y, names);
  faults.push_back(
      fmt::format("--y {}: is no metric of a {} point; {}must be one of {}, or GROUP_sent_bytes, "
                  "GROUP_across_bytes, GROUP_exposed_ms",
                  r.y, plan::name_of(r.mode), nearest.empty() ? "" : fmt::format("did you mean {}? It ", nearest),
                  fmt::join(names, ", ")));
}

/// Options that only some of the command's forms take.
void check_form(const SweepRequest& r, std::vector<std::string>& faults) {
  if (r.paper.empty()) {
    if (r.real) faults.emplace_back("--real: goes with --paper NAME; a grid runs for real by itself (--mode real)");
    if (r.paper_rows) faults.emplace_back("--rows: goes with --paper all");
    if (!r.papers.empty()) faults.emplace_back("--papers: goes with --paper NAME");
    return;
  }
  if (!r.axes.empty())
    faults.push_back(fmt::format("--paper {}: has its own axes; leave --grid and --zip out", r.paper));
  if (!r.ablation.empty()) faults.push_back(fmt::format("--paper {}: not with --ablation", r.paper));
  if (r.submit || r.only_point >= 0) {
    faults.push_back(fmt::format("--paper {}: runs in this allocation, not as an array", r.paper));
  }
  if (r.mode != plan::SweepMode::Real) {
    faults.push_back(fmt::format("--paper {}: --mode is the experiment's own; leave it out", r.paper));
  }
  if (r.real && (r.paper == "fit" || r.paper == "list")) {
    faults.push_back(fmt::format("--paper {} --real: nothing runs; must be a name of --paper list, or all", r.paper));
  }
  if (!r.real && (!r.base.empty() || r.dry_run || r.collect || r.retry_failed || r.repeats > 1)) {
    faults.push_back(fmt::format("--paper {}: predicts, nothing runs; options of runs{} need --real", r.paper,
                                 r.base.empty() ? "" : fmt::format(" ({})", r.base.front())));
  }
}

std::string joined(const io::Given& given) { return fmt::format("{}", fmt::join(given.values, " ")); }

void keep_for_points(const io::Given& given, std::vector<std::string>& base) {
  if (given.entry->kind == ValueKind::Switch) {
    base.push_back(fmt::format("--{}={}", given.entry->name, given.values[0]));
    return;
  }
  base.push_back("--" + given.entry->name);
  base.insert(base.end(), given.values.begin(), given.values.end());
}

void check_axes(const SweepRequest& r, const io::NameIndex& index, const std::vector<OptionEntry>& own,
                std::vector<std::string>& faults) {
  for (const plan::SweepAxis& axis : r.axes) {
    for (const std::string& name : axis.names) {
      const io::NameIndex::Match match = index.find(name);
      if (match.entry == nullptr) {
        faults.push_back(index.unknown(name));
        continue;
      }
      for (const OptionEntry& entry : own) {
        if (match.entry->name == entry.name && match.entry->set)
          faults.push_back(fmt::format("--{}: an option of the sweep itself cannot be an axis", name));
      }
    }
  }
}

}  // namespace

std::vector<OptionEntry> sweep_entries(SweepRequest& r) {
  std::vector<OptionEntry> all = {
      list_entry("grid", "OPTION=A,B,... ...",
                 "an axis of the grid, of any option of train; may be repeated. 'A;B' "
                 "where values hold commas, '-' leaves the option out",
                 [&r](const std::string& text) { r.axes.push_back(plan::parse_axis(text)); }),
      list_entry("zip", "O:P=A:X,B:Y,... ...", "options that change together, as one axis",
                 [&r](const std::string& text) { r.axes.push_back(plan::parse_zipped_axis(text)); }),
      count_entry("repeats", "runs of each point; means get a 95 % confidence interval (Student's t)", 1, r.repeats),
      count_entry("jobs",
                  "points at a time; ranks times jobs must not exceed the cores, else they would measure each other", 1,
                  r.jobs),
      mode_entry(r),
      text_entry("launcher", "COMMAND", "starts the ranks of a point; default 'mpiexec -n {ranks}'",
                 [&r](const std::string& text) { return r.launcher = text, std::string(); }),
      text_entry("out", "DIR",
                 "directory of the sweep; default sweeps/<mode>-<hash of the points' options>; --paper without --real: "
                 "file of the "
                 "result, default stdout",
                 [&r](const std::string& text) { return r.out = text, std::string(); }),
      timeout_entry(r),
      switch_entry("retry-failed", "run again what has ended without success", r.retry_failed),
      switch_entry("collect", "start nothing: results and figure of what is there", r.collect),
      switch_entry("dry-run", "list points and commands", r.dry_run),
      switch_entry("submit", "hand the missing points to sbatch as one job array", r.submit),
      list_entry("sbatch", "KEY=VALUE ...", "--submit: further #SBATCH options, as partition=gpu",
                 [&r](const std::string& text) { r.sbatch.push_back(text); }),
      count_entry("only-point", "run the point of that number alone (a task of the array)", 0, r.only_point),
      text_entry("ablation", "NAME", "a built-in experiment instead of a grid; --list-ablations",
                 [&r](const std::string& text) { return r.ablation = text, std::string(); }),
      switch_entry("list-ablations", "the built-in experiments", r.list_ablations),
  };
  for (OptionEntry& entry : paper_entries(r)) all.push_back(std::move(entry));
  for (OptionEntry& entry : figure_entries(r)) all.push_back(std::move(entry));
  return all;
}

void read_sweep_request(const std::vector<std::string>& args, SweepRequest& r) {
  const std::vector<OptionEntry> own = sweep_entries(r);
  std::vector<OptionEntry> extra = own;
  for (OptionEntry& entry : point_layout_entries()) extra.push_back(std::move(entry));
  const io::NameIndex index(extra);
  std::vector<io::Given> given;
  std::vector<std::string> faults;
  io::read_command_line(args, index, given, faults);
  io::RunOptions unused;
  for (const io::Given& one : given) {
    const auto is_own = [&one](const OptionEntry& entry) { return entry.name == one.entry->name; };
    if (one.entry->name == "help") {
      r.help = one.values[0] == "true";
    } else if (std::none_of(own.begin(), own.end(), is_own)) {
      keep_for_points(one, r.base);
    } else {
      try {
        const std::string fault = one.entry->set(unused, one.values);
        if (!fault.empty()) faults.push_back(fmt::format("{} {}: {}", one.typed, joined(one), fault));
      } catch (const ConfigError& error) {
        faults.emplace_back(error.what());
      }
    }
  }
  check_axes(r, index, own, faults);
  if (!r.help) {
    check_form(r, faults);
    check_figure(r, faults);
  }
  if (!faults.empty()) throw ConfigError(fmt::format("{}", fmt::join(faults, "\n  ")));
}

plan::RunnerOptions SweepRequest::runner_options() const {
  plan::RunnerOptions options;
  options.directory = out;
  options.launcher = plan::split_command(launcher);
  options.triax = plan::own_binary();
  options.point_timeout_s = point_timeout_s;
  options.retry = retry_failed ? plan::Retry::Failed : plan::Retry::No;
  options.jobs = static_cast<int>(jobs);
  options.run = collect ? plan::RunPoints::None : plan::RunPoints::Missing;
  if (options.launcher.empty()) throw ConfigError("--launcher: is empty; the default is 'mpiexec -n {ranks}'");
  return options;
}

}  // namespace triax::apps

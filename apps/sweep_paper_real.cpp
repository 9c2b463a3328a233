// `triax sweep --paper NAME --real`: the paper's experiment made small, run here, and its order beside the paper's.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/program_request.h"
#include "apps/sweep_paper.h"
#include "apps/sweep_run.h"
#include "base/error.h"
#include "plan/ablation/ablation.h"
#include "plan/scaled/scaled.h"
#include "plan/scaled/trend.h"
#include "plan/sweep/environment.h"

namespace triax::apps {
namespace {

using nlohmann::ordered_json;
using plan::PaperPreset;
using plan::ScaledExperiment;
using plan::ScaledPoint;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
/// Figures nearer to each other than this are alike.
constexpr double kApart = 0.03;

/// A point of the experiment, from both sides.
struct Line {
  std::string series, x, settings;
  double paper = kNone;
  bool published = false;
  std::string paper_unit = {}, state = {}, reason = {};
  double here = kNone;
  std::optional<double> half_width = {};
};

struct Outcome {
  const PaperPreset* preset = nullptr;
  ScaledExperiment experiment;
  std::vector<Line> lines = {};
  plan::Trend trend = {};
  int exit_code = 0;
};

/// The paper's rows that stand behind a point: published where all are, else predicted.
void take_paper(const PaperPreset& preset, const ScaledPoint& point, Line& line) {
  double published = 0, predicted = 0;
  size_t found = 0, printed = 0;
  for (const plan::PaperLine& row : preset.lines) {
    if (std::ranges::find(point.rows, row.id) == point.rows.end()) continue;
    ++found;
    printed += row.published > 0 ? 1 : 0;
    published += row.published;
    predicted += row.predicted;
    line.paper_unit = row.unit;
  }
  if (found != point.rows.size()) return;
  line.published = printed == found;
  line.paper = line.published ? published : predicted;
}

Outcome outcome_of(const PaperPreset& preset, ScaledExperiment experiment, const plan::AblationData& data) {
  Outcome outcome{&preset, std::move(experiment)};
  const ScaledExperiment& e = outcome.experiment;
  std::vector<plan::TrendPoint> points;
  for (const ScaledPoint& point : e.points) {
    Line line{point.series, point.x, plan::text_of(point.request.settings)};
    take_paper(preset, point, line);
    if (const plan::AblationRow* row = data.find(point.request.settings)) {
      line.state = name_of(row->row.state);
      line.reason = row->row.reason;
      if (const auto value = row->row.metrics.find(e.metric); value != row->row.metrics.end()) {
        line.here = value->second.mean * e.factor;
        if (value->second.half_width) line.half_width = *value->second.half_width * e.factor;
      }
    }
    points.push_back({line.series, line.x, line.paper, e.sense == plan::Sense::Inverse ? 1 / line.here : line.here});
    outcome.lines.push_back(std::move(line));
  }
  outcome.trend = plan::compare_orders(points, kApart);
  return outcome;
}

std::string trend_text(const Outcome& o) {
  const plan::Trend& t = o.trend;
  if (t.pairs == 0) return "orders: nothing to compare (no figure of the paper at hand, or no point done)\n";
  std::string text =
      fmt::format("orders: {} of {} pairs as in the paper{}{}{}\n", t.same, t.pairs,
                  t.alike > 0 ? fmt::format(", {} alike here (within {:.0f} %)", t.alike, 100 * kApart) : "",
                  t.reversed > 0 ? fmt::format(", {} the other way round", t.reversed) : "",
                  o.experiment.sense == plan::Sense::Inverse
                      ? fmt::format(" (less {} is more of the paper's figure)", o.experiment.unit)
                      : "");
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(kShown, t.reversed_pairs.size()); ++i) {
    text += fmt::format("        not here: {}\n", t.reversed_pairs[i]);
  }
  if (t.reversed_pairs.size() > kShown) text += fmt::format("        and {} more\n", t.reversed_pairs.size() - kShown);
  return text;
}

std::string table_of(const Outcome& o) {
  const ScaledExperiment& e = o.experiment;
  std::string text = fmt::format("{}\nmade small: {}\n", o.preset->title, e.cut);
  size_t series = 6, x = 1;
  for (const Line& line : o.lines) {
    series = std::max(series, line.series.size());
    x = std::max(x, line.x.size());
  }
  text += fmt::format("{:<{}}  {:<{}}  {:>10} {:<11}  {:>10} {:<11}  run here as\n", "series", series, "x", x, "paper",
                      "", "here", "");
  for (const Line& line : o.lines) {
    const std::string paper =
        std::isfinite(line.paper) ? fmt::format("{:.5g}{}", line.paper, line.published ? "" : "*") : "-";
    const std::string here = std::isfinite(line.here) ? fmt::format("{:.5g}", line.here) : line.state;
    const std::string width = line.half_width ? fmt::format("+-{:.2g} ", *line.half_width) : "";
    text += fmt::format("{:<{}}  {:<{}}  {:>10} {:<11}  {:>10} {:<11}  {}{}\n", line.series, series, line.x, x, paper,
                        line.paper_unit, here, std::isfinite(line.here) ? width + e.unit : "", line.settings,
                        line.reason.empty() ? "" : ": " + line.reason);
  }
  const bool predicted =
      std::ranges::any_of(o.lines, [](const Line& l) { return std::isfinite(l.paper) && !l.published; });
  if (predicted) text += "* predicted at full size: no published number at hand\n";
  text += trend_text(o);
  if (!e.missing.empty()) text += fmt::format("a run here lacks: {}\n", e.missing);
  return text;
}

std::string csv_of(const std::vector<Outcome>& outcomes) {
  std::string text = "preset,series,x,paper,paper_unit,published,here,unit,here_ci95,state,reason\n";
  const auto number = [](double value) { return std::isfinite(value) ? fmt::format("{:.8g}", value) : ""; };
  for (const Outcome& o : outcomes) {
    for (const Line& l : o.lines) {
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", o.preset->name, plan::csv_cell(l.series),
                          plan::csv_cell(l.x), number(l.paper), l.paper_unit, l.published ? 1 : 0, number(l.here),
                          o.experiment.unit, number(l.half_width.value_or(kNone)), l.state, plan::csv_cell(l.reason));
    }
  }
  return text;
}

ordered_json json_of(const Outcome& o) {
  const auto number = [](double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); };
  ordered_json json{{"preset", o.preset->name}, {"title", o.preset->title}};
  if (!o.experiment.none.empty()) return json["not_run"] = o.experiment.none, json;
  json["made_small"] = o.experiment.cut;
  json["missing"] = o.experiment.missing;
  json["metric"] = o.experiment.metric;
  json["unit"] = o.experiment.unit;
  for (const Line& l : o.lines) {
    json["points"].push_back({{"series", l.series},
                              {"x", l.x},
                              {"settings", l.settings},
                              {"paper", number(l.paper)},
                              {"paper_unit", l.paper_unit},
                              {"published", l.published},
                              {"here", number(l.here)},
                              {"here_ci95", number(l.half_width.value_or(kNone))},
                              {"state", l.state},
                              {"reason", l.reason}});
  }
  json["orders"] = {{"pairs", o.trend.pairs},
                    {"same", o.trend.same},
                    {"alike", o.trend.alike},
                    {"reversed", o.trend.reversed},
                    {"not_here", o.trend.reversed_pairs}};
  return json;
}

std::string result_text(Format format, const std::vector<Outcome>& outcomes) {
  if (format == Format::Csv) return csv_of(outcomes);
  std::string text;
  ordered_json json{{"schema", "triax-papers-real"}, {"version", 1}, {"presets", ordered_json::array()}};
  for (const Outcome& o : outcomes) {
    json["presets"].push_back(json_of(o));
    if (!text.empty()) text += "\n";
    text += o.experiment.none.empty() ? table_of(o)
                                      : fmt::format("{}: no run here: {}\n", o.preset->name, o.experiment.none);
  }
  return format == Format::Json ? json.dump(2) + "\n" : text;
}

std::vector<plan::Point> points_of(const SweepRequest& r, const ScaledExperiment& experiment) {
  std::vector<plan::Point> points;
  for (const ScaledPoint& point : experiment.points) {
    plan::PointRequest request = point.request;
    request.arguments.insert(request.arguments.end(), r.base.begin(), r.base.end());
    for (request.repeat = 1; request.repeat <= r.repeats; ++request.repeat) points.push_back(plan::make_point(request));
  }
  return points;
}

/// One preset: its points in a directory of its own, its tables and result.txt there.
Outcome run_preset(SweepRequest r, const PaperPreset& preset, ScaledExperiment experiment,
                   const std::vector<std::string>& args) {
  const std::vector<plan::Point> points = points_of(r, experiment);
  const plan::SweepRun run = run_said(points, r.runner_options());
  Outcome outcome = outcome_of(preset, std::move(experiment), plan::AblationData(points, run.records));
  outcome.exit_code = exit_code_of(run);
  if (!run.interrupted) {
    const std::vector<std::string> head = file_head(r, args);
    write_file(r.out + "/results.csv", plan::rows_csv(plan::rows_of(run.records), head));
    write_file(r.out + "/runs.csv", plan::runs_csv(run.records, head));
    write_file(r.out + "/result.txt", table_of(outcome));
  }
  return outcome;
}

}  // namespace

int sweep_paper_real(const SweepRequest& request, const std::vector<PaperPreset>& presets,
                     const std::vector<std::string>& args) {
  const int cores = plan::host_facts().cores;
  std::vector<Outcome> outcomes;
  for (const PaperPreset& preset : presets) {
    ScaledExperiment experiment = plan::scaled_experiment(preset.name, cores);
    if (!experiment.none.empty()) {
      // Asked for by its one name there is nothing to do; in a list it is a line that says so.
      if (presets.size() == 1) {
        throw ConfigError(
            fmt::format("--paper {} --real: no small run of it makes sense: {}", preset.name, experiment.none));
      }
      outcomes.push_back({&preset, std::move(experiment), {}, {}, 0});
      continue;
    }
    SweepRequest one = request;
    const std::string root = request.out.empty() ? "sweeps" : request.out;
    one.out = presets.size() == 1 && !request.out.empty() ? root
              : request.out.empty()                       ? fmt::format("{}/paper-{}", root, preset.name)
                                                          : fmt::format("{}/{}", root, preset.name);
    if (request.dry_run) {
      list_points(points_of(one, experiment), one.runner_options());
      continue;
    }
    outcomes.push_back(run_preset(one, preset, std::move(experiment), args));
    if (outcomes.back().exit_code == static_cast<int>(ExitCode::Interrupted)) return outcomes.back().exit_code;
  }
  if (request.dry_run) return 0;
  fmt::print("{}", result_text(request.format, outcomes));
  int code = 0;
  for (const Outcome& outcome : outcomes) code = std::max(code, outcome.exit_code);
  return code;
}

}  // namespace triax::apps

#include "plan/papers/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/median.h"

namespace triax::plan {
namespace {

const std::map<std::string, std::string>& goals() {
  static const std::map<std::string, std::string> kGoals{{"megatron21-table1", "mean 4 %, worst 8 %"},
                                                         {"megatron21-table2", "PTD-P as Table 1; ZeRO-3 15 %"},
                                                         {"korthikanti22-table4", "5 %"},
                                                         {"korthikanti22-table5", "5 %"},
                                                         {"vtrain-multi", "mean 8 %, median 3.5 %"},
                                                         {"vtrain-single", "12 %"},
                                                         {"llmfoundry-fsdp", "8 %"},
                                                         {"vtrain-nccl", "5 %"}};
  return kGoals;
}

/// Whether constants of the machine's links were fitted, so that formulas price its collectives.
bool has_fitted_links(const PaperRun& run) {
  const auto& all = paper_constants();
  return std::any_of(all.begin(), all.end(), [&](const PaperConstant& c) {
    return c.name == "collective_base_s" && c.origin == bench::Origin::Fitted && applies(c, run);
  });
}

/// A curve for each group through every third size.
double curve_us(const std::vector<PaperRun>& runs, const PaperRun& run) {
  std::vector<std::pair<double, double>> points;
  for (const PaperRun& other : runs) {
    if (other.preset == run.preset && other.series == run.series && other.fitted) {
      points.emplace_back(other.bytes, other.published);
    }
  }
  return points.empty() ? 0 : MeasuredCurve(std::move(points)).time_s(run.bytes);
}

PaperLine line_of(const std::vector<PaperRun>& runs, const PaperRun& run) {
  PaperLine line;
  line.preset = run.preset;
  line.id = run.id;
  line.series = run.series;
  line.x = run.x;
  line.unit = unit_of(run.metric);
  line.kind = run.published > 0 ? PaperKind::Prediction : PaperKind::Unpublished;
  line.published = run.published;
  const bool by_curve = run.metric == Metric::AllReduce && !has_fitted_links(run);
  line.predicted = by_curve ? curve_us(runs, run) : predict(run, paper_constants()).figure;
  line.fitted = run.fitted;
  line.certainty = run.certainty;
  line.source = run.source;
  return line;
}

/// Series that are given against their first point.
void normalise(const std::vector<PaperRun>& runs, std::vector<PaperLine>& lines) {
  std::map<std::string, double> first;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (runs[i].metric != Metric::Estimated) continue;
    const std::string key = lines[i].preset + lines[i].series;
    lines[i].predicted /= first.try_emplace(key, lines[i].predicted).first->second;
  }
}

}  // namespace

const char* name_of(PaperKind kind) {
  switch (kind) {
    case PaperKind::Prediction:
      return "prediction";
    case PaperKind::ClosedForm:
      return "closed form";
    case PaperKind::Unpublished:
      return "no published number";
  }
  return "";
}

double PaperLine::error() const {
  if (kind == PaperKind::ClosedForm) return predicted - published;
  if (bound == Bound::Over && predicted > published) return 0;
  if (bound == Bound::Under && predicted < published) return 0;
  return published > 0 ? 100 * (predicted / published - 1) : 0;
}

PaperLine paper_line(PaperKind kind, const std::string& preset, std::string series, std::string x, const char* unit,
                     double published, double predicted, const char* source) {
  PaperLine line;
  line.preset = preset;
  line.id = fmt::format("{}/{}/{}", preset, series, x);
  line.series = std::move(series);
  line.x = std::move(x);
  line.unit = unit;
  line.kind = published > 0 ? kind : PaperKind::Unpublished;
  line.published = published;
  line.predicted = predicted;
  line.certainty.assign(published > 0 ? 1 : 0, 'B');
  line.source = source;
  return line;
}

PaperSummary summarize(const PaperPreset& preset) {
  PaperSummary s;
  std::vector<double> errors;
  int fitted = 0;
  for (const PaperLine& line : preset.lines) {
    if (line.kind == PaperKind::Unpublished) continue;
    ++s.rows;
    const double e = std::abs(line.error());
    if (line.fitted) {
      ++fitted;
      s.fitted_mean += e;
    } else {
      errors.push_back(e);
    }
  }
  s.held = static_cast<int>(errors.size());
  if (fitted > 0) s.fitted_mean /= fitted;
  if (errors.empty()) return s;
  for (const double e : errors) s.mean += e / static_cast<double>(errors.size());
  s.median = median(errors);
  s.worst = *std::max_element(errors.begin(), errors.end());
  return s;
}

std::vector<std::string> paper_preset_names() {
  std::vector<std::string> names;
  for (const RunPreset& preset : run_presets()) names.push_back(preset.name);
  for (const char* name : {"megatron19-fig5", "zero19-configs", "zero19-table1", "zero19-table2", "zero19-fig1",
                           "korthikanti22-fig1", "korthikanti22-fig7", "korthikanti22-mfu", "zerobubble23-table5"}) {
    names.emplace_back(name);
  }
  return names;
}

std::vector<PaperPreset> paper_presets(const std::vector<std::string>& names, const std::string& directory,
                                       std::vector<std::string>& absent) {
  const std::vector<PaperRun> runs = paper_runs(directory, absent);
  const auto wanted = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<PaperPreset> presets;
  for (const RunPreset& preset : run_presets()) {
    if (!wanted(preset.name)) continue;
    PaperPreset p{preset.name, preset.title, {}, ""};
    const auto goal = goals().find(preset.name);
    if (goal != goals().end()) p.goal = goal->second;
    if (preset.name.starts_with("megatron21-fig")) p.goal = "10 %";
    std::vector<PaperRun> own;
    std::copy_if(runs.begin(), runs.end(), std::back_inserter(own),
                 [&](const PaperRun& run) { return run.preset == preset.name; });
    for (const PaperRun& run : own) p.lines.push_back(line_of(runs, run));
    normalise(own, p.lines);
    presets.push_back(std::move(p));
  }
  for (auto* const more : {&v100_presets, &closed_form_presets}) {
    for (PaperPreset& preset : more(directory)) {
      if (wanted(preset.name)) presets.push_back(std::move(preset));
    }
  }
  return presets;
}

}  // namespace triax::plan

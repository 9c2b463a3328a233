#include "apps/sweep_paper.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "apps/entry_makers.h"
#include "apps/program_request.h"
#include "base/error.h"
#include "plan/papers/fit.h"
#include "plan/papers/results.h"
#include "plan/sweep/results.h"

namespace triax::apps {
namespace {

using nlohmann::ordered_json;
using plan::PaperKind;
using plan::PaperLine;
using plan::PaperPreset;

constexpr const char* kPaperDescription =
    "published    the figure of the paper; \"-\": none at hand (predicted only)\n"
    "predicted    by the cost model (docs/cost-model.md); closed forms by formula\n"
    "error        predictions: 100 (predicted / published - 1); closed forms: predicted - published, in the unit\n"
    "fit          \"fit\": constants were fitted on this row; held out rows are those without, and the summary is of "
    "them\n"
    "certainty    A the authors' own, B text conversion, C secondary, D digitised from the figure\n"
    "--real: paper  the published figure, or with * the predicted one where none is at hand; here: of the small run\n"
    "orders       pairs of points that differ in the series or in x alone and by more than 3 % in the paper: how many\n"
    "             stand in the same order here, are alike here (within 3 %), or are the other way round\n";

std::vector<std::string> names_of(const std::string& text) {
  const std::vector<std::string> known = plan::paper_preset_names();
  if (text == "all") return known;
  std::vector<std::string> names;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = io::nearest_name(name, known);
    throw ConfigError(fmt::format(
        "--paper {}: no such experiment; {}", name,
        nearest.empty() ? "'triax sweep --paper list' names them" : fmt::format("did you mean {}?", nearest)));
  }
  return names;
}

std::string number(double value) { return value == 0 ? "-" : fmt::format("{:.5g}", value); }

std::string error_text(const PaperLine& line) {
  if (line.kind == PaperKind::Unpublished) return "-";
  if (line.kind == PaperKind::ClosedForm) return fmt::format("{:+.4g}", line.error());
  return fmt::format("{:+.1f} %", line.error());
}

std::string summary_text(const PaperPreset& preset) {
  const plan::PaperSummary s = plan::summarize(preset);
  if (s.rows == 0)
    return fmt::format("{:<22} {:>4} predicted, no published number at hand\n", preset.name, preset.lines.size());
  const bool closed = std::any_of(preset.lines.begin(), preset.lines.end(),
                                  [](const PaperLine& l) { return l.kind == PaperKind::ClosedForm; });
  const char* unit = closed ? "" : " %";
  std::string text = fmt::format("{:<22} {:>4} rows, {:>4} held out: mean {:.4g}{}, median {:.4g}{}, worst {:.4g}{}",
                                 preset.name, s.rows, s.held, s.mean, unit, s.median, unit, s.worst, unit);
  if (s.held < s.rows) text += fmt::format("; fitted rows {:.4g}{}", s.fitted_mean, unit);
  if (!preset.goal.empty()) text += fmt::format("  (goal {})", preset.goal);
  return text + "\n";
}

std::string table_of(const PaperPreset& preset) {
  std::string text = preset.title + "\n";
  text += fmt::format("{:<34} {:<36} {:>10} {:>10} {:>10} {:<8} {:<4} {}\n", "series", "x", "published", "predicted",
                      "error", "unit", "fit", "certainty");
  for (const PaperLine& line : preset.lines) {
    const std::string series = line.series.empty() ? line.id : line.series;
    text += fmt::format("{:<34} {:<36} {:>10} {:>10} {:>10} {:<8} {:<4} {}\n", series,
                        line.x.empty() ? line.id : line.x, number(line.published), number(line.predicted),
                        error_text(line), line.unit, line.fitted ? "fit" : "", line.certainty);
  }
  return text;
}

ordered_json json_of(const PaperPreset& preset) {
  const plan::PaperSummary s = plan::summarize(preset);
  ordered_json json;
  json["preset"] = preset.name;
  json["title"] = preset.title;
  json["goal"] = preset.goal;
  json["summary"] = {{"rows", s.rows},     {"held_out", s.held}, {"mean", s.mean},
                     {"median", s.median}, {"worst", s.worst},   {"fitted_mean", s.fitted_mean}};
  json["rows"] = ordered_json::array();
  for (const PaperLine& l : preset.lines) {
    ordered_json row{{"id", l.id}, {"series", l.series}, {"x", l.x}, {"unit", l.unit}, {"kind", name_of(l.kind)}};
    row["published"] = l.published > 0 ? ordered_json(l.published) : ordered_json(nullptr);
    row["predicted"] = l.predicted;
    row["error"] = l.kind == PaperKind::Unpublished ? ordered_json(nullptr) : ordered_json(l.error());
    row["fitted"] = l.fitted;
    row["certainty"] = l.certainty;
    row["source"] = l.source;
    json["rows"].push_back(std::move(row));
  }
  return json;
}

std::string csv_of(const std::vector<PaperPreset>& presets) {
  std::string text = "preset,id,series,x,unit,kind,published,predicted,error,fitted,certainty,source\n";
  for (const PaperPreset& preset : presets) {
    for (const PaperLine& l : preset.lines) {
      text += fmt::format("{},{},{},{},{},{},{},{:.8g},{},{},{},{}\n", preset.name, plan::csv_cell(l.id),
                          plan::csv_cell(l.series), plan::csv_cell(l.x), l.unit, name_of(l.kind),
                          l.published > 0 ? fmt::format("{:.8g}", l.published) : "", l.predicted,
                          l.kind == PaperKind::Unpublished ? "" : fmt::format("{:.4f}", l.error()), l.fitted ? 1 : 0,
                          l.certainty, plan::csv_cell(l.source));
    }
  }
  return text;
}

std::string fit_text(const SweepRequest& r) {
  std::vector<std::string> absent;
  const std::vector<plan::PaperRun> runs = plan::paper_runs(r.papers, absent);
  if (!absent.empty()) {
    throw ConfigError(
        fmt::format("--paper fit: {} of the tables are absent ({}, ...); --papers DIR names where they are",
                    absent.size(), absent.front()));
  }
  const std::vector<plan::PaperConstant>& compiled = plan::paper_constants();
  std::vector<plan::PaperConstant> fitted = plan::fit_start();
  plan::fit(runs, fitted);
  const auto rows = std::count_if(runs.begin(), runs.end(), [](const plan::PaperRun& run) { return run.fitted; });
  std::string text =
      fmt::format("{} of {} published rows\n{:<20} {:<28} {:>12} {:>12} {:>9} {:<10} {}\n", rows, runs.size(), "scope",
                  "constant", "fitted", "compiled in", "apart", "origin", "source");
  for (size_t i = 0; i < compiled.size(); ++i) {
    text += fmt::format("{:<20} {:<28} {:>12.5g} {:>12.5g} {:>8.2f} % {:<10} {}\n", compiled[i].scope, compiled[i].name,
                        fitted[i].value, compiled[i].value, 100 * (fitted[i].value / compiled[i].value - 1),
                        bench::name_of(compiled[i].origin), compiled[i].source);
  }
  return text;
}

std::string result_text(const SweepRequest& r) {
  if (r.paper == "list") {
    std::string text;
    for (const std::string& name : plan::paper_preset_names()) text += name + "\n";
    return text + "fit\n";
  }
  if (r.paper == "fit") return fit_text(r);
  const bool all = r.paper == "all";
  std::vector<std::string> absent;
  const std::vector<PaperPreset> presets = plan::paper_presets(names_of(r.paper), r.papers, absent);
  if (r.format == Format::Csv) return csv_of(presets);
  if (r.format == Format::Json) {
    ordered_json json;
    json["schema"] = "triax-papers";
    json["version"] = 1;
    json["absent"] = absent;
    json["presets"] = ordered_json::array();
    for (const PaperPreset& preset : presets) json["presets"].push_back(json_of(preset));
    return json.dump(2) + "\n";
  }
  std::string text;
  for (const PaperPreset& preset : presets) {
    if (!all || r.paper_rows) text += table_of(preset);
    text += summary_text(preset);
    if (!all || r.paper_rows) text += "\n";
  }
  for (const std::string& file : absent) text += fmt::format("{}: absent (--papers DIR)\n", file);
  return text;
}

}  // namespace

int sweep_paper(SweepRequest& r, const std::vector<std::string>& args) {
  if (const char* directory = std::getenv("TRIAX_PAPERS"); directory != nullptr && r.papers.empty()) {
    r.papers = directory;
  }
  if (r.describe) return fmt::print("{}", kPaperDescription), 0;
  if (!r.real) return write_result(r.out, result_text(r)), 0;
  std::vector<std::string> absent;
  return sweep_paper_real(r, plan::paper_presets(names_of(r.paper), r.papers, absent), args);
}

}  // namespace triax::apps

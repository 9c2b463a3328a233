// The page of several runs side by side.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/report/comparison.h"
#include "plan/report/page.h"
#include "plan/report/parts.h"
#include "plan/report/report.h"

namespace triax::plan {
namespace {

using io::escaped;
using io::NumberForm;
using io::short_number;

struct Shown {
  const char* metric;
  const char* title;
  NumberForm form;
};
constexpr Shown kShown[] = {{"last_lm_loss", "training loss, last", NumberForm::Plain},
                            {"validation_loss", "evaluation loss, last", NumberForm::Plain},
                            {"step_ms", "step, ms", NumberForm::Plain},
                            {"tokens_per_s", "tokens/s, all ranks", NumberForm::Plain},
                            {"model_tflops", "TFLOP/s per rank", NumberForm::Plain},
                            {"mfu", "MFU", NumberForm::Percent},
                            {"bubble_fraction", "pipeline bubble", NumberForm::Percent},
                            {"exposed_comm_ms", "exposed communication, ms", NumberForm::Plain},
                            {"data_wait_ms", "waiting for data, ms", NumberForm::Plain},
                            {"comm_bytes", "bytes sent per step, all ranks", NumberForm::Bytes},
                            {"peak_memory_bytes", "peak memory, fullest rank", NumberForm::Bytes}};

std::string group_head(const RunGroup& group, size_t index) {
  const std::string repeats = group.runs.size() > 1 ? fmt::format(" ({} runs)", group.runs.size()) : "";
  return fmt::format("<span class=\"key\"><i class=\"k{}\"></i></span>{}{}", index % 8, escaped(group.name), repeats);
}

std::vector<std::string> heads(const std::vector<RunGroup>& groups, const std::string& first) {
  std::vector<std::string> row = {first};
  for (size_t g = 0; g < groups.size(); ++g) row.push_back(group_head(groups[g], g));
  return row;
}

std::string value_cell(const Estimate& value, const Estimate& reference, bool is_first, NumberForm form) {
  if (value.count == 0) return "-";
  std::string text = short_number(value.mean, form);
  if (value.half_width) {
    text += fmt::format(" <span class=\"note\">±{}</span>", short_number(*value.half_width, form));
  }
  if (is_first || reference.count == 0 || reference.mean == 0) return text;
  const double change = 100 * (value.mean / reference.mean - 1);
  const bool clear = clearly_different(value, reference);
  return text +
         fmt::format("<br><span class=\"note\">{}{:+.1f} %{}</span>", clear ? "<b>" : "", change, clear ? "</b>" : "");
}

std::string metrics_table(const std::vector<RunGroup>& groups) {
  std::vector<std::vector<std::string>> table = {heads(groups, "metric")};
  const std::vector<ComparedMetric> metrics = compared_metrics(groups);
  for (const Shown& shown : kShown) {
    const auto same = [&shown](const ComparedMetric& m) { return m.name == shown.metric; };
    const auto metric = std::find_if(metrics.begin(), metrics.end(), same);
    if (metric == metrics.end()) continue;
    std::vector<std::string> row = {shown.title};
    for (size_t g = 0; g < groups.size(); ++g) {
      row.push_back(value_cell(metric->estimates[g], metric->estimates[0], g == 0, shown.form));
    }
    table.push_back(std::move(row));
  }
  return html_table(table, 1) +
         "<p class=\"note\">Means with 95 % intervals (Student's t): over the runs of a column where it has several, "
         "else over "
         "the steps of its one run. Changes are against the first column; bold where the intervals do not "
         "overlap.</p>\n";
}

std::string options_table(const std::vector<RunGroup>& groups) {
  std::vector<std::vector<std::string>> table = {heads(groups, "option")};
  for (const DifferingOption& option : differing_options(groups)) {
    std::vector<std::string> row = {"<code>--" + escaped(option.name) + "</code>"};
    for (const std::string& value : option.values) row.push_back(escaped(value));
    table.push_back(std::move(row));
  }
  if (table.size() == 1) return "<p>No option differs (seeds and places of output aside).</p>\n";
  return html_table(table, groups.size() + 1);
}

std::string incomparable_list(const std::vector<RunGroup>& groups) {
  std::string text;
  for (const Incomparable& one : incomparable(groups)) {
    text += fmt::format("<li><b>{}</b>: {}</li>\n", escaped(one.what), escaped(one.why));
  }
  if (text.empty()) return "<p>Nothing stands against comparing these runs.</p>\n";
  return "<ul>\n" + text + "</ul>\n";
}

bool by_tokens(const std::vector<RunGroup>& groups) {
  for (const RunGroup& group : groups) {
    for (const char* name : {"global-batch-size", "seq-length"}) {
      if (group.runs[0]->option(name) != groups[0].runs[0]->option(name)) return true;
    }
  }
  return false;
}

std::string curves(const std::vector<RunGroup>& groups) {
  const bool tokens = by_tokens(groups);
  const char* axis = tokens ? "consumed_tokens" : "iteration";
  std::string text = "<div class=\"charts\">\n";
  for (const CurveKind& kind : curve_kinds()) {
    io::Chart chart{kind.title, tokens ? "tokens" : "iteration", kind.unit, kind.form, kind.from_zero};
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const RunData* run : groups[g].runs) {
        const auto x = run->columns.find(axis), y = run->columns.find(kind.column);
        if (x == run->columns.end() || y == run->columns.end()) continue;
        const bool smooth = kind.noisy && y->second.size() >= 60;
        const int window = std::max<int>(5, static_cast<int>(y->second.size() / 40));
        chart.series.push_back({run == groups[g].runs[0] ? groups[g].name : "", x->second,
                                smooth ? io::running_median(y->second, window) : y->second, io::ChartLook::Line,
                                static_cast<int>(g % 8)});
      }
    }
    if (kind.hide_constant && is_constant(chart)) continue;
    text += chart_figure(chart);
  }
  return text + "</div>\n";
}

std::string short_list(const std::vector<RunGroup>& groups) {
  std::string text = "<ul class=\"plain\">\n";
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const RunData* run : groups[g].runs) {
      text +=
          fmt::format("<li><span class=\"key\"><i class=\"k{}\"></i></span>{}: {}{}</li>\n", g % 8, escaped(run->name),
                      escaped(sentence_of(*run)),
                      run->ended == "finished" ? ""
                                               : fmt::format(" <span class=\"bad\">({})</span>",
                                                             run->ended.empty() ? "unfinished" : escaped(run->ended)));
    }
  }
  return text + "</ul>\n";
}

}  // namespace

std::string comparison_page(const std::vector<RunData>& runs) {
  const std::vector<RunGroup> groups = groups_of(runs);
  const std::string title = fmt::format("{} runs side by side", runs.size());
  std::string body = fmt::format("<h1>{}</h1>\n", title);
  if (groups.size() < runs.size()) {
    body +=
        fmt::format("<p class=\"sub\">{} settings; runs of the same options are repeats and stand in one column.</p>\n",
                    groups.size());
  }
  body += short_list(groups);
  body += section("Not comparable", incomparable_list(groups));
  body += section("Options that differ", options_table(groups));
  body += section("Metrics", metrics_table(groups));
  body += section("Curves", curves(groups));
  return html_page(title, body + footer());
}

}  // namespace triax::plan

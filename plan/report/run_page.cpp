// The page of one run.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/median.h"
#include "base/version.h"
#include "plan/report/layout_drawing.h"
#include "plan/report/page.h"
#include "plan/report/parts.h"
#include "plan/report/report.h"

namespace triax::plan {
namespace {

using io::escaped;
using io::NumberForm;
using io::short_number;

std::string number(double value, const char* unit = "") {
  return std::isfinite(value) ? fmt::format("{}{}", short_number(value, NumberForm::Plain), unit) : "-";
}

std::string percent(double value) { return std::isfinite(value) ? fmt::format("{:.1f} %", 100 * value) : "-"; }

std::string head(const RunData& run) {
  const bool good = run.ended == "finished";
  const std::string state = run.ended.empty() ? "unfinished" : run.ended;
  return fmt::format("<h1>{}<span class=\"badge {}\">{}</span></h1>\n<p class=\"sub\">{}</p>\n", escaped(run.name),
                     good ? "good" : "bad", escaped(state), escaped(sentence_of(run)));
}

std::string overview(const RunData& run) {
  const Estimate step = estimate(run.counted("step_ms"));
  const double mfu = median(run.counted("mfu"));
  const double peak = maximum(run, "peak_memory_bytes");
  const double evaluation = run.evaluations.empty() ? NAN : run.evaluations.back().loss;
  std::vector<Tile> list = {
      {number(run.last("lm_loss")), "training loss, last", fmt::format("iteration {:.0f}", run.last("iteration"))}};
  if (std::isfinite(evaluation)) {
    list.push_back({number(evaluation), fmt::format("{} loss, last", run.evaluations.back().split),
                    fmt::format("perplexity {:.4g}", std::exp(std::min(20.0, evaluation)))});
  }
  list.push_back(
      {number(median(run.counted("tokens_per_s"))), "tokens/s, all ranks", fmt::format("{} ranks", run.world_size)});
  list.push_back({number(median(run.counted("step_ms")), " ms"), "step, median",
                  step.half_width ? fmt::format("mean {:.4g} ±{:.2g}", step.mean, *step.half_width) : ""});
  list.push_back({mfu > 0 ? percent(mfu) : "-", "MFU",
                  run.peak_tflops > 0 ? fmt::format("of {:.4g} TFLOP/s per rank", run.peak_tflops) : "peak unknown"});
  list.push_back({percent(median(run.counted("bubble_fraction"))), "pipeline bubble", "of total, mean over stages"});
  list.push_back({number(median(run.counted("exposed_comm_ms")), " ms"), "exposed communication", "slowest rank"});
  list.push_back({std::isfinite(peak) ? short_number(peak, NumberForm::Bytes) : "-", "peak memory", "fullest rank"});
  return tiles(list);
}

io::Chart chart_of(const RunData& run, const CurveKind& kind) {
  io::Chart chart{kind.title, "iteration", kind.unit, kind.form, kind.from_zero};
  const auto column = run.columns.find(kind.column);
  if (column == run.columns.end()) return chart;
  const std::vector<double>& x = run.columns.at("iteration");
  const bool long_run = column->second.size() >= 60 && kind.noisy;
  chart.series.push_back({long_run ? "each step" : kind.title, x, column->second,
                          long_run ? io::ChartLook::Faint : io::ChartLook::Line, 0});
  if (long_run) {
    const int window = std::max<int>(5, static_cast<int>(column->second.size() / 40));
    chart.series.push_back(
        {fmt::format("median of {}", window), x, io::running_median(column->second, window), io::ChartLook::Line, 0});
  }
  return chart;
}

std::string curves(const RunData& run) {
  std::string text = "<div class=\"charts\">\n";
  for (const CurveKind& kind : curve_kinds()) {
    io::Chart chart = chart_of(run, kind);
    if (kind.hide_constant && is_constant(chart)) continue;
    if (std::string(kind.column) == "lm_loss") {
      std::map<std::string, io::ChartSeries> splits;
      for (const RunEvaluation& e : run.evaluations) {
        io::ChartSeries& series = splits[e.split];
        series.x.push_back(e.iteration);
        series.y.push_back(e.loss);
      }
      int colour = 1;
      for (auto& [split, series] : splits) {
        series.label = split;
        series.look = io::ChartLook::Marks;
        series.colour = colour++;
        chart.series.push_back(series);
      }
      if (chart.series.size() > 1 && chart.series[0].look == io::ChartLook::Line) chart.series[0].label = "training";
    }
    text += chart_figure(chart);
  }
  return text + "</div>\n";
}

/// "dp all_reduce"; parts by kind of layer are set in.
std::string traffic(const RunData& run) {
  if (run.traffic.empty()) return {};
  double most = 0;
  for (const TrafficRow& row : run.traffic) most = std::max(most, row.sent_bytes);
  std::vector<std::vector<std::string>> table = {
      {"group", "operation", "share of the largest", "calls", "sent per rank", "busy ms", "exposed ms", "GB/s"}};
  for (const TrafficRow& row : run.traffic) {
    const std::string name = row.kind.empty() ? escaped(row.group) : "&nbsp;&nbsp;of it " + escaped(row.kind);
    const std::string bar =
        most > 0 ? fmt::format("<span class=\"bar\" style=\"width:{:.0f}px\"></span>", 120 * row.sent_bytes / most)
                 : "";
    table.push_back({name, escaped(row.operation) + (row.converted ? " *" : ""), bar, fmt::format("{:.1f}", row.calls),
                     short_number(row.sent_bytes, NumberForm::Bytes), fmt::format("{:.3f}", row.busy_ms),
                     fmt::format("{:.3f}", row.exposed_ms),
                     row.busy_ms > 0 ? fmt::format("{:.3f}", row.sent_bytes / row.busy_ms * 1e-6) : "-"});
  }
  return html_table(table, 3) +
         "<p class=\"note\">Per step, mean of all ranks. Exposed: time in which ranks stood waiting. * bytes are the "
         "payload times the algorithm's factor, not counted at each send.</p>\n";
}

std::string pipeline(const RunData& run) {
  if (run.picture.empty()) return {};
  std::string svg = run.picture;
  // The viewBox scales the picture; its fixed size would not fit a page.
  const size_t end = svg.find('>');
  for (const char* name : {" width=\"", " height=\""}) {
    const size_t at = svg.find(name);
    if (at >= end) continue;
    const size_t close = svg.find('"', at + std::string(name).size());
    svg.erase(at, close + 1 - at);
  }
  return fmt::format(
      "<div class=\"paper\">{}</div>\n<p class=\"note\">One recorded step, a row per pipeline position; "
      "numbers are micro-batches.</p>\n",
      svg);
}

std::string options(const RunData& run) {
  std::vector<std::vector<std::string>> table = {{"option", "value", "from"}};
  for (const auto& [name, option] : run.options) {
    if (option.origin == "default" || option.origin == "derived" || option.value.empty()) continue;
    table.push_back({"<code>--" + escaped(name) + "</code>", escaped(option.value), escaped(option.origin)});
  }
  if (table.size() == 1) return "<p>All options have their defaults.</p>\n";
  return html_table(table, 3);
}

std::string events(const RunData& run) {
  std::string text = "<ul>\n";
  for (const RunEvent& event : run.events) {
    text += fmt::format("<li{}>{}{}</li>\n", event.bad ? " class=\"bad\"" : "",
                        event.iteration >= 0 ? fmt::format("iteration {:.0f}: ", event.iteration) : "",
                        escaped(event.text));
  }
  return text + "</ul>\n";
}

}  // namespace

std::string run_page(const RunData& run) {
  std::string body = head(run) + overview(run);
  if (run.iterations() == 0) body += "<p>No iteration has been recorded yet.</p>\n";
  body += section("Curves", run.iterations() > 0 ? curves(run) : "");
  body += section("Events", events(run));
  body += section("Where the ranks are", layout_svg(run));
  body += section("The pipeline in one step", pipeline(run));
  body += section("Communication", traffic(run));
  body += section("Options that differ from the defaults", options(run));
  body += section("Environment", environment_list(run));
  body += section("Repeat it", repeat_text(run));
  return html_page(run.name, body + footer());
}

}  // namespace triax::plan

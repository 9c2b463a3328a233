// `triax trace`: what a trace says, and how a real and a simulated one differ, op by op.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/program_request.h"
#include "apps/trace_flight.h"
#include "base/error.h"
#include "io/trace/chrome_trace.h"
#include "io/trace/trace_summary.h"

namespace triax::apps {
namespace {

using nlohmann::ordered_json;

constexpr const char* kTraceUsage =
    "usage: triax trace summary FILE [--format table|json|csv]\n"
    "       triax trace diff A B [--format table|json|csv]\n"
    "       triax trace blame RUN_DIR [--format table|json]\n"
    "       triax trace flight RUN_DIR [--rank R] [--last N] [--format table|json]\n\n"
    "  summary  span, bubble, and time by kind of op and rank\n"
    "  diff     lines the traces up op by op: times by kind, ops in one only, the pairs that differ most\n"
    "  blame    who ended a run, why, and what every rank did at the time; also of a run that hangs now\n"
    "  flight   the last N things (40) that each rank began and ended\n\n"
    "Traces are those of 'triax program time --chrome FILE' and of a run directory's trace/.\n";

struct TraceRequest {
  std::vector<std::string> files;
  Format format = Format::Table;
};

TraceRequest parse_trace(const std::vector<std::string>& args, size_t files) {
  TraceRequest request;
  for (size_t i = 1; i < args.size(); ++i) {
    std::string word = args[i];
    if (word == "--format" && i + 1 < args.size()) word = "--format=" + args[++i];
    if (word == "--format=table")
      request.format = Format::Table;
    else if (word == "--format=json")
      request.format = Format::Json;
    else if (word == "--format=csv")
      request.format = Format::Csv;
    else if (word.starts_with("--"))
      throw ConfigError(fmt::format("trace {}: {}: must be --format table|json|csv", args[0], word));
    else
      request.files.push_back(word);
  }
  if (request.files.size() != files) {
    throw ConfigError(fmt::format("trace {}: needs {} file(s), not {}; 'triax trace --help' explains it", args[0],
                                  files, request.files.size()));
  }
  return request;
}

io::Timeline load(const std::string& path) { return io::parse_chrome_trace(read_file(path), path); }

double ms(double ps) { return ps * 1e-9; }
double ms(int64_t ps) { return ms(static_cast<double>(ps)); }

void print_summary(const io::TraceSummary& s, const io::Timeline& t) {
  fmt::print("{} trace of {}, program {}\nbubble {:.2f} % of total, {:.2f} % of ideal; span {:.6g} ms, end {:.6g} ms\n",
             t.source, t.schedule, t.program_hash, 100 * s.bubble_of_total, 100 * s.bubble_of_ideal, ms(s.span_ps),
             ms(s.end_ps));
  fmt::print("{:>6} {:<12} {:>14}\n", "rank", "kind", "time_ms");
  for (const io::RankSummary& rank : s.ranks) {
    for (const auto& [kind, ps] : rank.kind_ps) {
      if (ps > 0) fmt::print("{:>6} {:<12} {:>14.6g}\n", rank.rank, parallel::name_of(kind), ms(ps));
    }
  }
}

int summary(const std::vector<std::string>& args) {
  const TraceRequest request = parse_trace(args, 1);
  const io::Timeline timeline = load(request.files[0]);
  const io::TraceSummary s = io::summarize(timeline);
  if (request.format == Format::Table) return print_summary(s, timeline), 0;
  if (request.format == Format::Csv) {
    fmt::print("rank,kind,time_ms\n");
    for (const io::RankSummary& rank : s.ranks) {
      for (const auto& [kind, ps] : rank.kind_ps) fmt::print("{},{},{}\n", rank.rank, parallel::name_of(kind), ms(ps));
    }
    return 0;
  }
  ordered_json json = {{"schema", "triax-trace-summary"},
                       {"version", 1},
                       {"source", timeline.source},
                       {"schedule", timeline.schedule},
                       {"program_hash", timeline.program_hash},
                       {"span_ms", ms(s.span_ps)},
                       {"end_ms", ms(s.end_ps)},
                       {"bubble_of_total", s.bubble_of_total},
                       {"bubble_of_ideal", s.bubble_of_ideal}};
  for (const io::RankSummary& rank : s.ranks) {
    ordered_json kinds;
    for (const auto& [kind, ps] : rank.kind_ps) kinds[parallel::name_of(kind)] = ms(ps);
    json["ranks"].push_back({{"rank", rank.rank},
                             {"busy_ms", ms(rank.busy_ps)},
                             {"span_ms", ms(rank.span_ps)},
                             {"receive_ms", ms(rank.receive_ps)},
                             {"kind_ms", kinds}});
  }
  fmt::print("{}\n", json.dump(2));
  return 0;
}

double error_percent(double a, double b) { return a == 0 ? 0 : 100 * (b / a - 1); }

void print_difference(const io::TraceDifference& d) {
  if (!d.same_program) fmt::print("the traces are of different programs\n");
  fmt::print("{:<12} {:>8} {:>14} {:>14} {:>9} {:>16}\n", "kind", "ops", "mean_a_ms", "mean_b_ms", "b/a-1",
             "worst_start_ms");
  for (const io::KindDifference& k : d.kinds) {
    fmt::print("{:<12} {:>8} {:>14.6g} {:>14.6g} {:>8.2f}% {:>16.6g}\n", parallel::name_of(k.kind), k.ops,
               ms(k.mean_a_ps), ms(k.mean_b_ps), error_percent(k.mean_a_ps, k.mean_b_ps), ms(k.worst_start_ps));
  }
  fmt::print("only in a: {}, only in b: {}\n", d.unmatched_a, d.unmatched_b);
  for (const std::string& name : d.only_a) fmt::print("  a  {}\n", name);
  for (const std::string& name : d.only_b) fmt::print("  b  {}\n", name);
  for (const auto& pair : d.worst) {
    if (pair.duration_a_ps == pair.duration_b_ps) break;
    fmt::print("  rank {:>3} {:<12} {:>14.6g} {:>14.6g}\n", pair.rank, pair.name, ms(pair.duration_a_ps),
               ms(pair.duration_b_ps));
  }
}

int diff(const std::vector<std::string>& args) {
  const TraceRequest request = parse_trace(args, 2);
  const io::TraceDifference d = io::compare(load(request.files[0]), load(request.files[1]));
  if (request.format == Format::Table) return print_difference(d), 0;
  if (request.format == Format::Csv) {
    fmt::print("kind,ops,mean_a_ms,mean_b_ms,worst_start_ms\n");
    for (const io::KindDifference& k : d.kinds) {
      fmt::print("{},{},{},{},{}\n", parallel::name_of(k.kind), k.ops, ms(k.mean_a_ps), ms(k.mean_b_ps),
                 ms(k.worst_start_ps));
    }
    return 0;
  }
  ordered_json json = {{"schema", "triax-trace-diff"},   {"version", 1},
                       {"same_program", d.same_program}, {"only_a", d.unmatched_a},
                       {"only_b", d.unmatched_b},        {"kinds", ordered_json::array()},
                       {"worst", ordered_json::array()}};
  for (const io::KindDifference& k : d.kinds) {
    json["kinds"].push_back({{"kind", parallel::name_of(k.kind)},
                             {"ops", k.ops},
                             {"mean_a_ms", ms(k.mean_a_ps)},
                             {"mean_b_ms", ms(k.mean_b_ps)},
                             {"worst_start_ms", ms(k.worst_start_ps)}});
  }
  for (const auto& pair : d.worst) {
    json["worst"].push_back(
        {{"rank", pair.rank}, {"name", pair.name}, {"a_ms", ms(pair.duration_a_ps)}, {"b_ms", ms(pair.duration_b_ps)}});
  }
  fmt::print("{}\n", json.dump(2));
  return 0;
}

}  // namespace

int trace_command(const std::vector<std::string>& args) {
  const std::string action = args.empty() ? "" : args[0];
  if (action == "--help" || action == "-h") return fmt::print("{}", kTraceUsage), 0;
  if (action == "summary") return summary(args);
  if (action == "diff") return diff(args);
  if (action == "blame") return trace_blame(args);
  if (action == "flight") return trace_flight(args);
  throw ConfigError(fmt::format(
      "trace {}: must be followed by summary, diff, blame or flight; 'triax trace --help' explains them", action));
}

}  // namespace triax::apps

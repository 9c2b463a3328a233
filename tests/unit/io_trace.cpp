// Traces: what is written is read back, nests, and shows; two traces are lined up op by op.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/trace/chrome_trace.h"
#include "io/trace/gantt.h"
#include "io/trace/trace_summary.h"
#include "tests/unit/parallel_programs.h"

namespace triax::io {
namespace {

using parallel::Costs;
using parallel::ScheduleKind;

constexpr int64_t kUnit = 1'000'000'000'000;

Timeline timeline_of(ScheduleKind kind, int v, const Costs& costs) {
  parallel::ProgramOptions options = parallel::program_options(parallel::schedule_options(kind, 4, v, 8));
  options.bucket_chunks.assign(4, {v - 1, 0});
  options.tied_embedding = true;
  const parallel::Program program = parallel::make_training_program(options);
  const parallel::Simulation s = parallel::simulate(program, parallel::table_of(program, costs));
  return make_timeline(program, s.times, "simulated");
}

TEST(ChromeTrace, IsReadBackToThePicosecond) {
  const Timeline written = timeline_of(ScheduleKind::Interleaved, 2, {kUnit / 3, kUnit / 7, 12345, 1});
  const Timeline read = parse_chrome_trace(chrome_trace(written), "t.json");
  EXPECT_EQ(read.schedule, "interleaved");
  EXPECT_EQ(read.program_hash, written.program_hash);
  EXPECT_EQ(read.chunks, 2);
  ASSERT_EQ(read.ranks.size(), 4u);
  EXPECT_EQ(read.ranks[1].name, "position 1, stages 1 5");
  ASSERT_EQ(read.events.size(), written.events.size());
  for (size_t i = 0; i < read.events.size(); ++i) {
    const TimelineEvent& a = written.events[i];
    const TimelineEvent& b = read.events[i];
    ASSERT_EQ(a.name, b.name);
    ASSERT_EQ(a.kind, b.kind);
    ASSERT_EQ(a.stream, b.stream);
    ASSERT_EQ(a.start_ps, b.start_ps) << a.name;
    ASSERT_EQ(a.stop_ps, b.stop_ps) << a.name;
    ASSERT_EQ(a.match, b.match);
    ASSERT_EQ(a.op, b.op);
  }
  EXPECT_EQ(chrome_trace(read), chrome_trace(written));
}

// What Perfetto needs: slices of a thread nest, each flow has both ends on slices, counters return to zero.
TEST(ChromeTrace, NestsAndConnects) {
  for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::ZeroBubbleH2,
                                  ScheduleKind::Interleaved, ScheduleKind::ZeroBubbleV}) {
    const int v = kind == ScheduleKind::Interleaved || kind == ScheduleKind::ZeroBubbleV ? 2 : 1;
    const Timeline timeline = timeline_of(kind, v, {kUnit, kUnit, kUnit, kUnit / 8});
    EXPECT_EQ(nesting_faults(timeline), std::vector<std::string>());
    const nlohmann::json root = nlohmann::json::parse(chrome_trace(timeline));
    std::map<int64_t, std::pair<int, int>> flows;
    std::map<int, int> last_count, peak;
    for (const auto& e : root.at("traceEvents")) {
      const std::string phase = e.at("ph");
      if (phase == "s") ++flows[e.at("id")].first;
      if (phase == "f") ++flows[e.at("id")].second;
      if (phase == "C") {
        const int count = e.at("args").at("chunks");
        last_count[e.at("pid")] = count;
        peak[e.at("pid")] = std::max(peak[e.at("pid")], count);
      }
    }
    const int crossings = kind == ScheduleKind::ZeroBubbleV ? 6 : 4 * v - 1;
    EXPECT_EQ(flows.size(), static_cast<size_t>(2 * crossings * 8));
    for (const auto& [id, ends] : flows) EXPECT_EQ(ends, (std::pair{1, 1}));
    for (const auto& [rank, count] : last_count) EXPECT_EQ(count, 0);
    if (kind == ScheduleKind::OneFOneB) {
      EXPECT_EQ(peak, (std::map<int, int>{{0, 4}, {1, 3}, {2, 2}, {3, 1}}));
    }
  }
}

TEST(NestingFaults, NamesOverlappingOps) {
  Timeline timeline = timeline_of(ScheduleKind::OneFOneB, 1, {kUnit, kUnit, kUnit});
  for (TimelineEvent& e : timeline.events) {
    if (e.name == "1F1") e.start_ps -= kUnit / 2;
  }
  EXPECT_EQ(nesting_faults(timeline), std::vector<std::string>{"rank 1, compute: 1F0 overlaps 1F1"});
}

TEST(ChromeTrace, WrongFilesAreNamed) {
  const auto error_of = [](const std::string& text) {
    try {
      static_cast<void>(parse_chrome_trace(text, "x.json"));
    } catch (const RunTimeError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(error_of("{").find("x.json: not a trace of triax"), std::string::npos);
  EXPECT_NE(error_of("[]").find("x.json"), std::string::npos);
  EXPECT_NE(error_of(R"({"traceEvents":[],"otherData":{"schema":"other","version":1}})").find("schema must be"),
            std::string::npos);
  std::string text = chrome_trace(timeline_of(ScheduleKind::GPipe, 1, {1, 1, 1}));
  text.replace(text.find("\"cat\":\"F\""), 9, "\"cat\":\"Q\"");
  EXPECT_NE(error_of(text).find("op kind \"Q\" is not known"), std::string::npos);
}

TEST(TextGantt, ShowsOneRowPerRank) {
  const Timeline timeline = timeline_of(ScheduleKind::OneFOneB, 1, {kUnit, kUnit, kUnit});
  const std::string text = text_gantt(timeline, {.width = 66});  // end at 33: two columns a unit
  EXPECT_EQ(text.substr(0, text.find('\n')), "0 |F0F1F2F3............B0--F4B1--F5B2--F6B3--F7B4--..B5--..B6--..B7--|");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  const std::string small = text_gantt(timeline, {.width = 33});
  EXPECT_EQ(small.substr(0, small.find('\n')), "0 |FFFF......B0FB1FB2FB3FB4.B5.B6.B7|");
  EXPECT_NE(text_gantt(timeline, {.width = 33, .colour = Colour::Yes}).find("\033[34mF"), std::string::npos);
}

TEST(SvgGantt, HasABarForEveryOpWithTime) {
  const Timeline timeline = timeline_of(ScheduleKind::ZeroBubbleH1, 1, {kUnit, kUnit, kUnit});
  const std::string svg = svg_gantt(timeline, {.title = "a < b & c"});
  size_t bars = 0;
  for (size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) ++bars;
  EXPECT_EQ(bars, 4u * 8 * 3);
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_NE(svg.find("weight gradient"), std::string::npos);
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

TEST(TraceSummary, FindsSpanAndBubble) {
  const TraceSummary summary = summarize(timeline_of(ScheduleKind::ZeroBubbleH1, 1, {kUnit, kUnit, kUnit}));
  EXPECT_EQ(summary.span_ps, 27 * kUnit);
  EXPECT_NEAR(summary.bubble_of_total, 3.0 / 27, 1e-12);
  EXPECT_NEAR(summary.bubble_of_ideal, 3.0 / 24, 1e-12);
  EXPECT_EQ(summary.ranks[2].kind_ps.at(parallel::OpKind::BackwardWeight), 8 * kUnit);
}

TEST(TraceCompare, LinesOpsUp) {
  const Timeline a = timeline_of(ScheduleKind::OneFOneB, 1, {100, 100, 100});
  Timeline b = timeline_of(ScheduleKind::OneFOneB, 1, {110, 100, 100});
  for (TimelineEvent& e : b.events) {
    if (e.name == "2B3") e.stop_ps += 50;
    if (e.name == "1F7") e.name = "1F9";
  }
  const TraceDifference d = compare(a, b);
  EXPECT_TRUE(d.same_program);
  EXPECT_EQ(d.kinds.front().kind, parallel::OpKind::LoadBatch);
  const auto forward = std::find_if(d.kinds.begin(), d.kinds.end(),
                                    [](const KindDifference& k) { return k.kind == parallel::OpKind::Forward; });
  EXPECT_EQ(forward->ops, 31);
  EXPECT_DOUBLE_EQ(forward->mean_a_ps, 100);
  EXPECT_DOUBLE_EQ(forward->mean_b_ps, 110);
  EXPECT_EQ(d.only_a, std::vector<std::string>{"rank 1: 1F7"});
  EXPECT_EQ(d.only_b, std::vector<std::string>{"rank 1: 1F9"});
  const Timeline other = timeline_of(ScheduleKind::GPipe, 1, {100, 100, 100});
  EXPECT_FALSE(compare(a, other).same_program);
  EXPECT_EQ(compare(a, a, 3).worst.size(), 3u);
  EXPECT_EQ(compare(a, a).worst[0].duration_a_ps, compare(a, a).worst[0].duration_b_ps);
}

}  // namespace
}  // namespace triax::io

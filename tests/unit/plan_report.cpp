// Reports: what is read of a run, finished or not; repeats, differences and what cannot be compared; nothing that tells
// who ran it; pages that are whole.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "io/options/options.h"
#include "io/options/validate.h"
#include "io/plot/chart_svg.h"
#include "io/report/metrics_file.h"
#include "io/report/run_directory.h"
#include "plan/report/comparison.h"
#include "plan/report/events.h"
#include "plan/report/report.h"
#include "tests/unit/temporary_directory.h"

using namespace triax;
using namespace triax::plan;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

namespace {

enum class Ends { Well, Not };

/// A run directory as the trainer writes it, of `steps` steps of 10 + (step % 2) ms each.
std::string make_run(const std::string& path, const std::vector<std::string>& more, int steps, Ends ends) {
  std::vector<std::string> args = {"--model",
                                   "t0",
                                   "--no-bf16",
                                   "--mock-data",
                                   "--micro-batch-size",
                                   "2",
                                   "--lr",
                                   "1e-3",
                                   "--train-iters",
                                   "8",
                                   "--pipeline-model-parallel-size",
                                   "2",
                                   "--save",
                                   "/lustre/someone/weights"};
  args.insert(args.end(), more.begin(), more.end());
  io::ParsedOptions parsed = io::parse_options(args);
  io::resolve(parsed.options, 4);
  io::RunFacts facts;
  facts.version = "0.1.0";
  facts.commit = "abc";
  facts.command_line = {"triax", "train", "--save", "/lustre/someone/weights"};
  facts.world_size = 4;
  facts.hosts = {"node7.site.example", "node7.site.example", "node8.site.example", "node8.site.example"};
  facts.slurm_job_id = "4711";
  facts.parameters = 208576;
  facts.libraries["mpi"] = "MPICH at /opt/site/mpich";
  std::filesystem::create_directories(path);
  io::write_run_files({path, false}, parsed, facts);
  {
    io::MetricsFile metrics(path + "/metrics.jsonl");
    for (int i = 1; i <= steps; ++i) {
      io::IterationRecord r;
      r.iteration = i;
      r.consumed_tokens = 64 * i;
      r.lm_loss = 5 - 0.1 * i;
      r.step_ms = 10 + i % 2;
      r.tokens_per_s = 1000;
      r.comm_bytes = 77;
      r.skipped = i == 2;
      metrics.write(r);
    }
    metrics.write(io::EvaluationRecord{.iteration = steps, .lm_loss = 4.5, .bits_per_byte = {}, .tokens = 1});
  }
  if (ends == Ends::Well) {
    test::write_file(path + "/summary.json",
                     R"({"ended":"finished","communication":[{"group":"dp","kind":"","operation":"all_reduce","calls":1,
                     "sent_bytes":1048576,"busy_ms":2,"exposed_ms":1,"converted":false}]})");
  }
  return path;
}

TEST(RunData, reads_a_finished_and_a_crashed_run) {
  const test::TemporaryDirectory directory;
  const RunData run = read_run(make_run(directory.file("a"), {}, 8, Ends::Well));
  EXPECT_EQ(run.iterations(), 8u);
  EXPECT_EQ(run.counted("step_ms").size(), 5u);  // without the first three
  EXPECT_EQ(run.last("lm_loss"), 5 - 0.1 * 8);
  EXPECT_EQ(run.ended, "finished");
  ASSERT_EQ(run.traffic.size(), 1u);
  EXPECT_EQ(run.traffic[0].sent_bytes, 1048576);
  ASSERT_TRUE(run.resolved);
  EXPECT_EQ(run.resolved->parallel.grid.data, 2);

  make_run(directory.file("b"), {}, 3, Ends::Not);
  std::ofstream(directory.file("b/metrics.jsonl"), std::ios::app) << "{\"iteration\": 4, \"lm_lo";  // torn
  const RunData crashed = read_run(directory.file("b"));
  EXPECT_EQ(crashed.iterations(), 3u);
  EXPECT_TRUE(std::isnan(crashed.last("none")));
  const auto events = events_of(crashed);
  EXPECT_THAT(events.back().text, HasSubstr("no summary.json"));
  EXPECT_THAT(events.back().text, HasSubstr("iteration 3 of 8"));
  EXPECT_THAT(events, Contains(Field(&RunEvent::text, "1 skipped steps (overflow), iterations: 2")));
  std::filesystem::remove(directory.file("b/metrics.jsonl"));
  EXPECT_THAT(run_page(read_run(directory.file("b"))), HasSubstr("No iteration has been recorded yet"));
  EXPECT_THROW(read_run(directory.path()), ConfigError);
}

TEST(RunPage, is_whole_and_says_what_matters) {
  const test::TemporaryDirectory directory;
  RunData run = read_run(make_run(directory.file("a"), {"--seed", "7"}, 8, Ends::Well));
  run.events = events_of(run);
  const std::string page = run_page(run);
  for (const char* words :
       {"<h1>a<span class=\"badge good\">finished", "t0, 208.6k parameters, on 4 ranks: tp 1, pp 2, dp 2", "layers 0-1",
        "rank 3 on node8.site.example", "1 MiB", "<code>--seed</code></td><td>7", "4711", "perplexity 90.02"}) {
    EXPECT_THAT(page, HasSubstr(words));
  }
  EXPECT_THAT(page, Not(HasSubstr("<code>--adam-beta1</code>"))) << "a default";
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("url(http")));
  for (const char* tag : {"section", "table", "svg", "figure", "dl", "ul"}) {
    const auto count = [&page](const std::string& text) {
      int n = 0;
      for (size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) ++n;
      return n;
    };
    EXPECT_EQ(count(fmt::format("<{}>", tag)) + count(fmt::format("<{} ", tag)), count(fmt::format("</{}>", tag)))
        << tag;
  }
}

TEST(Anonymous, no_host_user_path_or_job) {
  const test::TemporaryDirectory directory;
  const passwd* user = ::getpwuid(::getuid());
  const std::string name = user == nullptr ? "someone" : user->pw_name;
  std::vector<RunData> runs;
  for (const char* seed : {"1", "2"}) {
    runs.push_back(read_run(
        make_run(directory.file(seed), {"--seed", seed, "--model-name", "of-" + name + " " + name}, 8, Ends::Well)));
    runs.back().events = {
        {1, "killed on node7.site.example (node8) by " + name + ", see /home/" + name + "/log", true}};
    runs.back().environment["SLURM_JOB_NODELIST"] = "node[7-8]";
    runs.back().environment["LD_PRELOAD"] = "/opt/site/x.so";
    runs.back().environment["OMP_NUM_THREADS"] = "2";
    make_anonymous(runs.back(), static_cast<int>(runs.size()));
  }
  for (const std::string& page : {run_page(runs[0]), comparison_page(runs)}) {
    for (const std::string& secret :
         {std::string("node7"), std::string("node8"), std::string("node["), std::string("site"), std::string("/lustre"),
          std::string("someone"), std::string("4711"), std::string("/opt"), "by " + name, "/home/" + name,
          directory.path()}) {
      EXPECT_THAT(page, Not(HasSubstr(secret)));
    }
  }
  const std::string page = run_page(runs[0]);
  EXPECT_THAT(page, HasSubstr("killed on host 1 (host 2) by (user), see (path)"));
  EXPECT_THAT(page, HasSubstr("rank 3 on host 2"));
  EXPECT_THAT(page, HasSubstr("<dt>OMP_NUM_THREADS</dt><dd>2</dd>"));
  EXPECT_THAT(page, HasSubstr("<code>--seed</code></td><td>1</td>"));
}

TEST(Comparison, repeats_differences_and_what_is_not_comparable) {
  const test::TemporaryDirectory directory;
  std::vector<RunData> runs = {read_run(make_run(directory.file("a"), {"--seed", "1"}, 8, Ends::Well)),
                               read_run(make_run(directory.file("b"), {"--seed", "2"}, 7, Ends::Well)),
                               read_run(make_run(directory.file("c"), {"--global-batch-size", "8"}, 8, Ends::Not))};
  runs[2].data_hash = "other";
  runs[2].hosts = {"node9"};
  const auto groups = groups_of(runs);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].runs.size(), 2u);
  const auto options = differing_options(groups);
  ASSERT_EQ(options.size(), 1u);
  EXPECT_EQ(options[0].name, "global-batch-size");
  EXPECT_THAT(options[0].values, ElementsAre("4", "8"));
  const auto reasons = incomparable(groups);
  EXPECT_THAT(reasons, Contains(Field(&Incomparable::why, "other data (none / other)")));
  EXPECT_THAT(reasons, Contains(Field(&Incomparable::why, HasSubstr("other global batches"))));
  EXPECT_THAT(reasons, Contains(Field(&Incomparable::why, HasSubstr("other hosts"))));
  EXPECT_THAT(reasons, Contains(Field(&Incomparable::what, "Everything of c")));
  EXPECT_THAT(incomparable({groups[0]}), testing::IsEmpty());
  for (const ComparedMetric& metric : compared_metrics(groups)) {
    if (metric.name == "step_ms") {  // medians 10 of iterations 4 to 8, and 10.5 of 4 to 7; steps 10 11 10 11 10
      EXPECT_DOUBLE_EQ(metric.estimates[0].mean, 10.25);
      EXPECT_NEAR(*metric.estimates[0].half_width, 12.706205 * 0.25, 1e-6);
      EXPECT_DOUBLE_EQ(metric.estimates[1].mean, 10.4);
      EXPECT_EQ(metric.estimates[1].count, 5);
    }
    if (metric.name == "comm_bytes") {
      EXPECT_EQ(*metric.estimates[1].half_width, 0);
    }
  }
  EXPECT_TRUE(clearly_different({3, 10, 1.0}, {3, 13, 1.5}));
  EXPECT_FALSE(clearly_different({3, 10, 1.0}, {3, 12, 1.5}));
  const std::string page = comparison_page(runs);
  EXPECT_THAT(page, HasSubstr("3 runs side by side"));
  EXPECT_THAT(page, HasSubstr("<b>Losses</b>: other data (none / other)"));
}

TEST(Chart, ticks_numbers_and_spikes) {
  EXPECT_THAT(io::round_ticks(0, 1, 5), ElementsAre(0, testing::DoubleEq(0.2), testing::DoubleEq(0.4),
                                                    testing::DoubleEq(0.6), testing::DoubleEq(0.8), 1));
  EXPECT_FALSE(std::signbit(io::round_ticks(-0.01, 10, 5)[0]));
  EXPECT_EQ(io::short_number(23240, io::NumberForm::Plain), "23.24k");
  EXPECT_EQ(io::short_number(1234, io::NumberForm::Plain), "1234");
  EXPECT_EQ(io::short_number(0.0263, io::NumberForm::Percent), "2.63 %");
  EXPECT_EQ(io::short_number(1610612736, io::NumberForm::Bytes), "1.5 GiB");
  EXPECT_THAT(io::running_median({1, 1, 100, 1, NAN}, 3), ElementsAre(1, 1, 1, 100, 1));
  io::Chart chart{"t", "x", "y"};
  chart.series.push_back({"a"});
  EXPECT_EQ(io::chart_svg(chart), "");
  for (int i = 0; i < 10000; ++i) {
    chart.series[0].x.push_back(i);
    chart.series[0].y.push_back(i == 5000 ? 50 : 1);
  }
  const std::string svg = io::chart_svg(chart);
  EXPECT_LT(svg.size(), 12000u);
  EXPECT_THAT(svg, HasSubstr(">50</text>"));  // the spike decides the axis and is drawn
  EXPECT_THAT(svg, testing::ContainsRegex("L[0-9.]+ 24\\.[0-9]"));
}

}  // namespace

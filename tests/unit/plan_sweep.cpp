// A sweep's parts: axes, points and their names, statistics, what becomes of a process, rows, the batch script.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/median.h"
#include "plan/sweep/grid.h"
#include "plan/sweep/point.h"
#include "plan/sweep/process.h"
#include "plan/sweep/record.h"
#include "plan/sweep/results.h"
#include "plan/sweep/statistics.h"
#include "plan/sweep/submit.h"
#include "plan/sweep/sweep_figure.h"
#include "tests/unit/temporary_directory.h"

using namespace triax;
using namespace triax::plan;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

namespace {

TEST(Statistics, students_t_and_the_interval_of_three_values) {
  EXPECT_NEAR(student_t95(1), 12.706205, 1e-6);
  EXPECT_NEAR(student_t95(30), 2.042272, 1e-6);
  EXPECT_NEAR(student_t95(31), 2.039513, 2e-6);  // the expansion takes over here
  EXPECT_NEAR(student_t95(100), 1.983972, 1e-6);
  EXPECT_NEAR(student_t95(1'000'000'000), 1.959964, 1e-6);
  const std::vector<double> values = {1, 2, 6};
  const Estimate three = estimate(values);
  EXPECT_EQ(three.mean, 3);
  EXPECT_NEAR(*three.half_width, 4.302653 * std::sqrt(7.0 / 3), 1e-9);
  EXPECT_FALSE(estimate(std::vector<double>{5}).half_width.has_value());
  EXPECT_EQ(median(values), 2);
}

TEST(Grid, axes_zips_and_their_faults) {
  const auto all = combinations({parse_axis("a=1,2"), parse_zipped_axis("b:c=x:3,y:4")});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_THAT(all[1], ElementsAre(Pair("a", "1"), Pair("b", "y"), Pair("c", "4")));
  EXPECT_THAT(all[2], ElementsAre(Pair("a", "2"), Pair("b", "x"), Pair("c", "3")));
  EXPECT_EQ(parse_axis("--cost=F=1,B=2;F=1,B=3").values[1][0], "F=1,B=3");
  EXPECT_EQ(combinations({}).size(), 1u);
  EXPECT_THROW(parse_axis("a"), ConfigError);
  EXPECT_THROW(parse_axis("a=1,,2"), ConfigError);
  EXPECT_THROW(parse_axis("a=1,2,"), ConfigError);
  EXPECT_THROW(parse_axis("a=1,1"), ConfigError);
  EXPECT_THROW(parse_zipped_axis("a:b=1:2,3"), ConfigError);
  EXPECT_THROW(combinations({parse_axis("a=1,2"), parse_axis("a=3,4")}), ConfigError);
}

const std::vector<std::string> kBase = {"--model",       "t0", "--mock-data", "--micro-batch-size", "2", "--lr", "1e-3",
                                        "--train-iters", "3"};

TEST(Point, ranks_global_batch_and_command) {
  const Point point = make_point({SweepMode::Real,
                                  kBase,
                                  {{"tensor-model-parallel-size", "2"},
                                   {"data-parallel-size", "3"},
                                   {"num-microbatches", "4"},
                                   {"sequence-parallel", "true"},
                                   {"seed", "-"}},
                                  2});
  EXPECT_EQ(point.refusal, "");
  EXPECT_EQ(point.ranks, 6);
  EXPECT_THAT(point.name, testing::MatchesRegex("tensor-model-parallel-size=2,data-parallel-size=3,.*-[0-9a-f]{8}-r2"));
  const auto command = command_of(point, {"srun", "-n", "{ranks}"}, "triax", "d");
  EXPECT_THAT(std::vector(command.begin(), command.begin() + 5), ElementsAre("srun", "-n", "6", "triax", "train"));
  EXPECT_THAT(command, testing::IsSupersetOf({"--sequence-parallel=true", "--global-batch-size", "24", "--run-dir"}));
  EXPECT_THAT(command, testing::Not(testing::Contains("--num-microbatches")));
  EXPECT_THAT(command, testing::Not(testing::Contains("--seed")));
}

TEST(Point, simulated_points_take_the_simulator_where_a_machine_is_named) {
  const auto words = [](const std::vector<std::string>& arguments) {
    const auto command = command_of(make_point({SweepMode::Simulated, arguments, {}, 1}), {}, "triax", "d");
    return std::vector(command.begin() + 1, command.begin() + 3);
  };
  EXPECT_EQ(words({"--hw", "a100"})[0], "sim");
  EXPECT_THAT(words({"--cost", "F=1"}), ElementsAre("program", "time"));
  std::vector<std::string> clock = kBase;
  clock.insert(clock.begin(), {"--hw", "a100"});
  const Point point = make_point({SweepMode::Virtual, clock, {}, 1});
  EXPECT_EQ(point.refusal, "");
  EXPECT_EQ(point.arguments.back(), "a100");
}

TEST(Metrics, a_prediction_has_the_names_of_a_run) {
  const test::TemporaryDirectory directory;
  test::write_file(directory.file("time.json"),
                   R"({"schema":"triax-sim","step_s":2.5,"tokens_per_s":100,"bubble_of_total":0.25,
                   "exposed":{"tp":0.1,"pp":0.2,"dp":0,"zero":0},"traffic":{"tp":7,"pp":1,"dp":2},
                   "memory":{"bytes":1024,"limit":2048},"mfu":{"causal":0.4},"tflops":{"model_causal":120}})");
  std::map<std::string, double> metrics;
  ASSERT_TRUE(read_metrics(directory.path(), SweepMode::Simulated, metrics));
  EXPECT_EQ(metrics["step_ms"], 2500);
  EXPECT_EQ(metrics["tokens_per_s"], 100);
  EXPECT_EQ(metrics["comm_bytes"], 10);
  EXPECT_NEAR(metrics["exposed_comm_ms"], 300, 1e-9);
  EXPECT_EQ(metrics["mfu"], 0.4);
  EXPECT_EQ(metrics["peak_memory_bytes"], 1024);
}

TEST(Point, the_name_follows_from_all_arguments) {
  const auto name = [](std::vector<std::string> base, SweepMode mode) {
    return make_point({mode, std::move(base), {{"seed", "1"}}, 1}).name;
  };
  EXPECT_EQ(name(kBase, SweepMode::Real), name(kBase, SweepMode::Real));
  EXPECT_NE(name(kBase, SweepMode::Real), name(kBase, SweepMode::Virtual));
  auto other = kBase;
  other.back() = "4";
  EXPECT_NE(name(kBase, SweepMode::Real), name(other, SweepMode::Real));
}

TEST(Point, what_the_trainer_refuses_is_a_row) {
  const Point point = make_point({SweepMode::Real, kBase, {{"tensor-model-parallel-size", "3"}}, 1});
  EXPECT_THAT(point.refusal, HasSubstr("--tensor-model-parallel-size 3: must divide --num-attention-heads 4"));
  EXPECT_THAT(make_point({SweepMode::Real, kBase, {{"num-microbatches", "0"}}, 1}).refusal,
              HasSubstr("--num-microbatches 0: must be"));
  EXPECT_THAT(make_point({SweepMode::Real, kBase, {{"world-size", "3"}, {"data-parallel-size", "2"}}, 1}).refusal,
              HasSubstr("--world-size 3: must be tp cp pp d = 2"));
}

TEST(Process, ends_are_told_apart) {
  const test::TemporaryDirectory directory;
  const auto run = [&](const std::string& script, double timeout_s) {
    const std::string base = directory.path() + "/" + std::to_string(std::hash<std::string>()(script));
    const ProcessResult result =
        run_process({{"sh", "-c", script}, base + ".out", base + ".err", directory.path(), timeout_s});
    PointRecord record;
    judge(result, base + ".err", record);
    return record;
  };
  EXPECT_EQ(run("exit 0", 0).state, PointState::Done);
  const PointRecord refused = run("echo 'triax: --x 3: must be 1' >&2; echo other >&2; exit 2", 0);
  EXPECT_EQ(refused.state, PointState::Refused);
  EXPECT_EQ(refused.reason, "--x 3: must be 1");
  EXPECT_EQ(run("exit 3", 0).state, PointState::Infeasible);
  EXPECT_EQ(run("echo 'rank 0: std::bad_alloc' >&2; exit 5", 0).state, PointState::OutOfMemory);
  EXPECT_EQ(run("kill -9 $$", 0).state, PointState::OutOfMemory);
  EXPECT_EQ(run("sleep 30", 0.1).state, PointState::TimedOut);
  const PointRecord failed = run("echo first >&2; echo last >&2; echo ==== >&2; exit 7", 0);
  EXPECT_EQ(failed.state, PointState::Failed);
  EXPECT_EQ(failed.reason, "last (exit code 7)");
  EXPECT_THROW(
      run_process(ProcessRequest{{"no-such-program-here"}, directory.path() + "/o", directory.path() + "/e", "", 0}),
      RunTimeError);
  EXPECT_THAT(split_command("srun -n {ranks} 'a b' \"c\"d e\\ f"),
              ElementsAre("srun", "-n", "{ranks}", "a b", "cd", "e f"));
  EXPECT_THROW(split_command("'open"), ConfigError);
}

PointRecord record(const std::string& schedule, const std::string& m, double step_ms, PointState state) {
  PointRecord one;
  one.settings = {{"schedule", schedule}, {"m", m}};
  one.mode = "real";
  one.state = state;
  if (state == PointState::Done) one.metrics["step_ms"] = step_ms;
  if (state != PointState::Done) one.reason = "a, \"b\"";
  return one;
}

TEST(Record, comes_back_from_its_file) {
  const test::TemporaryDirectory directory;
  PointRecord one = record("1f1b", "4", 0.1 + 0.2, PointState::Done);
  one.command = {"mpiexec", "-n", "2"};
  write_record(directory.path(), one);
  const auto back = read_record(directory.path());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->metrics, one.metrics);  // to the same bits
  EXPECT_EQ(back->settings, one.settings);
  EXPECT_EQ(back->state, PointState::Done);
  EXPECT_EQ(back->command, one.command);
  std::ofstream(directory.path() + "/point.json") << "{\"schema\": \"triax.po";  // torn
  EXPECT_FALSE(read_record(directory.path()));
}

TEST(Results, repeats_become_one_row_with_an_interval) {
  const std::vector<PointRecord> records = {
      record("1f1b", "4", 10, PointState::Done), record("1f1b", "4", 12, PointState::Done),
      record("zb-h1", "4", 8, PointState::Done), record("zb-h1", "4", 0, PointState::TimedOut)};
  const auto rows = rows_of(records);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].mean("step_ms"), 11);
  EXPECT_NEAR(*rows[0].metrics.at("step_ms").half_width, 12.706205, 1e-5);
  EXPECT_EQ(rows[1].state, PointState::TimedOut);
  EXPECT_EQ(rows[1].done, 1);
  EXPECT_TRUE(std::isnan(rows[1].mean("none")));
  const std::string csv = rows_csv(rows, {"host: h"});
  EXPECT_THAT(csv, HasSubstr("# host: h\nmode,schedule,m,ranks,repeats,done,state,reason,step_ms,step_ms_ci95\n"));
  EXPECT_THAT(csv, HasSubstr("real,zb-h1,4,1,2,1,timed out,\"a, \"\"b\"\"\",8,\n"));
  EXPECT_THAT(runs_csv(records, {}), HasSubstr("real,1f1b,4,1,1,done,,0,0.000,,,,,12\n"));
}

TEST(Results, the_figure_takes_the_numeric_axis_and_says_what_is_missing) {
  std::vector<PointRecord> records;
  for (const char* m : {"4", "8", "16", "64"}) records.push_back(record("1f1b", m, 10, PointState::Done));
  records.push_back(record("zb-h1", "4", 0, PointState::Failed));
  records.push_back(record("zb-h1", "8", 5, PointState::Done));
  const auto figure = figure_of(rows_of(records), "", "step_ms");
  ASSERT_TRUE(figure);
  EXPECT_EQ(figure->x_label, "m");
  EXPECT_EQ(figure->x_scale, io::Scale::Log2);
  ASSERT_EQ(figure->series.size(), 2u);
  EXPECT_EQ(figure->series[1].label, "schedule zb-h1");
  EXPECT_THAT(figure->series[1].x, ElementsAre(8));
  EXPECT_THAT(figure->notes, ElementsAre("1 of 6 points have no value; results.csv says why."));
  EXPECT_THROW(figure_of(rows_of(records), "", "speed"), ConfigError);
  EXPECT_THROW(figure_of(rows_of(records), "seed", "step_ms"), ConfigError);
  EXPECT_EQ(figure_of(rows_of(records), "schedule", "step_ms")->series[0].look, io::SeriesLook::Bars);
}

TEST(Submit, the_script_lists_the_missing_points) {
  const ArrayJob job{
      "triax-sweep", "out", {0, 3, 4}, 8, 90, {"partition=gpu"}, {"triax", "sweep", "--launcher", "srun -n {ranks}"}};
  const std::string script = batch_script(job);
  EXPECT_THAT(script, HasSubstr("#SBATCH --array=0,3,4\n#SBATCH --ntasks=8\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --time=7\n#SBATCH --partition=gpu\n"));
  EXPECT_THAT(script,
              HasSubstr("exec triax sweep --launcher 'srun -n {ranks}' --only-point \"$SLURM_ARRAY_TASK_ID\"\n"));
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
}

}  // namespace

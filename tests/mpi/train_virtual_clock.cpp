// --clock virtual in the trainer: real training steps whose clocks equal the simulation of the same program, op by op.
#include <gtest/gtest.h>

#include "parallel/cost_text.h"
#include "parallel/simulator.h"
#include "tests/mpi/mpi_world.h"
#include "tests/mpi/train_harness.h"

namespace triax::test {
namespace {

using parallel::ScheduleKind;

struct Case {
  ScheduleKind schedule;
  int vpp;
  int dp;
  double jitter;
  const char* cost;
};

io::RunOptions options_of(const Case& c, int pp) {
  Layout layout{TinyModel::T0, Head::Tied, 1, pp, c.vpp, c.dp};
  io::RunOptions o = tiny_options(layout);
  o.parallel.schedule = c.schedule;
  o.batch.global_batch_size = int64_t{pp == 3 ? 9 : 8} * c.dp;  // m = 8, or 9, which 3 divides
  o.control.clock = "virtual";
  o.control.cost = c.cost;
  o.control.jitter = c.jitter;
  if (c.jitter > 0) o.control.stragglers = {"0:1:1.5"};
  return o;
}

parallel::Simulation simulation_of(TinyRun& run) {
  const io::RunControl& control = run.options().control;
  const parallel::Program& program = run.trainer().program();
  const auto text = parallel::parse_costs(control.cost, program.pipeline, program.num_micro_batches);
  parallel::SimulationOptions options;
  options.replicas = run.options().parallel.grid.data;
  options.recorded_replica = run.grid().coord().data;
  options.time.jitter = {control.jitter, control.seed};
  for (const std::string& word : control.stragglers) options.time.stragglers.push_back(parallel::parse_straggler(word));
  return simulate(program, make_cost_table(text.costs, program.pipeline, program.chunks), options);
}

TEST(VirtualClock, training_steps_take_exactly_the_simulated_times) {
  const int world = session().size();
  for (const ScheduleKind schedule :
       {ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::Interleaved, ScheduleKind::ZeroBubbleH1,
        ScheduleKind::ZeroBubbleH2, ScheduleKind::ZeroBubbleV}) {
    const int vpp = schedule == ScheduleKind::Interleaved || schedule == ScheduleKind::ZeroBubbleV ? 2 : 1;
    for (const Case& c :
         {Case{schedule, vpp, 1, 0, "F=1,I=1,W=1"}, Case{schedule, vpp, 1, 0, "F=1,I=1.5,W=0.5,P2P=0.25,OPT=2"},
          Case{schedule, vpp, world % 4 == 0 ? 2 : 1, 0.2, "F=1,I=1,W=1,P2P=0.1,REDUCE_GRAD=0.5"}}) {
      const int pp = world / c.dp;
      if (pp > 4) continue;  // the tiny models have eight layers
      TinyRun run(session(), options_of(c, pp));
      SCOPED_TRACE(run.trainer().program().schedule + " " + c.cost);
      for (int step = 0; step < 2; ++step) run.step();
      const parallel::Simulation simulated = simulation_of(run);
      EXPECT_EQ(run.trainer().virtual_times().makespan_ps, simulated.makespan_ps);
      EXPECT_EQ(run.trainer().virtual_times().span_ps, simulated.span_ps);
      EXPECT_EQ(run.trainer().op_times(), simulated.times);
    }
  }
}

TEST(VirtualClock, zero_bubble_spans_of_real_training_at_p4_m8) {
  if (session().size() != 4) GTEST_SKIP() << "runs with 4 ranks";
  const auto span = [](ScheduleKind schedule, int vpp) {
    TinyRun run(session(), options_of({schedule, vpp, 1, 0, "F=1,I=1,W=1"}, 4));
    run.step();
    return static_cast<double>(run.trainer().virtual_times().span_ps) /
           static_cast<double>(run.trainer().virtual_unit_ps());
  };
  EXPECT_EQ(span(ScheduleKind::OneFOneB, 1), 33);
  EXPECT_EQ(span(ScheduleKind::Interleaved, 2), 28.5);
  EXPECT_EQ(span(ScheduleKind::ZeroBubbleH1, 1), 27);
  EXPECT_EQ(span(ScheduleKind::ZeroBubbleH2, 1), 24);
  EXPECT_LE(span(ScheduleKind::ZeroBubbleV, 2), 25);
}

// The accounting of a measured step: what is busy, idle and other fills the step on every position.
TEST(PipelineTiming, measured_times_are_those_of_the_program) {
  const int pp = std::min(session().size(), 4);
  Layout layout{TinyModel::T0, Head::Tied, 1, pp, 1, session().size() / pp};
  TinyRun run(session(), tiny_options(layout));
  run.step();
  const train::OpTimes times = run.trainer().op_times();
  const train::PipelineTiming timing = train::analyse(run.trainer().program(), times);
  ASSERT_EQ(times.size(), static_cast<size_t>(pp));
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(times[i].size(), run.trainer().program().positions[i].size());
    EXPECT_GE(timing.other_ps(i), 0);
    EXPECT_GT(timing.busy_ps[i], 0);
    for (size_t k = 1; k < times[i].size(); ++k) EXPECT_GE(times[i][k].start_ps, times[i][k - 1].stop_ps);
  }
  if (pp > 1) {
    EXPECT_GT(timing.bubble_of_total, 0);
    EXPECT_LT(timing.bubble_of_total, 1);
    // No receive ends before its send began, on one host's clock.
    EXPECT_GT(timing.makespan_ps, timing.span_ps);
  }
}

}  // namespace
}  // namespace triax::test

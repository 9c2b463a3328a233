// --clock virtual --hw: real training steps whose clocks end exactly when the prediction from the machine says.
#include <gtest/gtest.h>

#include "plan/hardware_presets.h"
#include "plan/prediction.h"
#include "tests/mpi/mpi_world.h"
#include "tests/mpi/train_harness.h"

namespace triax::test {
namespace {

TEST(VirtualClock, training_on_a_machine_takes_exactly_the_predicted_time) {
  const int world = session().size();
  using parallel::ScheduleKind;
  struct Case {
    ScheduleKind schedule;
    int tp, pp, vpp, zero;
    double jitter;
  };
  for (const Case& c : {Case{ScheduleKind::OneFOneB, 1, 2, 1, 1, 0}, Case{ScheduleKind::OneFOneB, 2, 2, 1, 0, 0.1},
                        Case{ScheduleKind::Interleaved, 1, 2, 2, 1, 0}, Case{ScheduleKind::ZeroBubbleH1, 1, 2, 1, 2, 0},
                        Case{ScheduleKind::OneFOneB, 1, 2, 1, 3, 0}}) {
    const int dp = world / (c.tp * c.pp);
    if (dp == 0) continue;
    io::RunOptions o = tiny_options({TinyModel::T0, Head::Tied, c.tp, c.pp, c.vpp, dp});
    o.parallel.schedule = c.schedule;
    o.parallel.zero_stage = c.zero;
    o.batch.global_batch_size = int64_t{4} * dp;
    o.control.clock = "virtual";
    o.control.jitter = c.jitter;
    if (c.jitter > 0) o.control.stragglers = {"rank=1:1.5"};
    TinyRun run(session(), o);
    SCOPED_TRACE(run.trainer().program().schedule + " zero " + std::to_string(c.zero));
    for (const char* name : {"selene", "4090"}) {
      bench::Hardware machine = *plan::find_hardware(name);
      plan::PredictionOptions what;
      what.time = io::time_options_of(run.options());
      what.recorded_replica = run.grid().coord().data;
      const plan::Prediction predicted = plan::predict(run.options(), machine, what);
      run.trainer().set_virtual_costs(plan::costs_of(run.options(), machine).table);
      run.step();
      EXPECT_EQ(run.trainer().virtual_times().makespan_ps, predicted.step_ps);
      EXPECT_GT(predicted.step_ps, 0);
      EXPECT_EQ(run.trainer().op_times(), predicted.simulated->simulation.times);
    }
  }
}

}  // namespace
}  // namespace triax::test

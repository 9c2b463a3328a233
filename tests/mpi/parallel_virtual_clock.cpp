// The virtual clock over real ranks shows the simulator's times, op by op and to the picosecond.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "comm/process_grid.h"
#include "parallel/checker.h"
#include "parallel/simulator.h"
#include "parallel/virtual_clock.h"
#include "tests/mpi/mpi_world.h"
#include "tests/unit/parallel_programs.h"

namespace triax::parallel {
namespace {

Program rich_program(const ScheduleOptions& schedule) {
  ProgramOptions options = program_options(schedule);
  options.tied_embedding = true;
  options.tensor_partial = true;
  options.bucket_chunks.assign(static_cast<size_t>(schedule.pipeline), {schedule.chunks - 1, 0});
  options.gathered.assign(static_cast<size_t>(schedule.pipeline), {{0, schedule.chunks - 1}, {1, 0}});
  options.messages = schedule.pipeline % 2 == 0 ? Messages::Scattered : Messages::Whole;
  options.gather_time = schedule.num_micro_batches % 2 == 0 ? GatherTime::AtStart : GatherTime::AtEnd;
  return make_training_program(options);
}

CostTable uneven_table(const Program& program) {
  UniformCosts costs;
  for (int i = 0; i < program.pipeline; ++i) {
    costs.forward_ps.push_back(1'000'000 + 70'000 * (i % 3));
    costs.latency_ps.push_back(90'000 + 1'000 * i);
  }
  costs.backward_input_ps = {1'100'003};
  costs.backward_weight_ps = {700'001};
  costs.reduce_ps = {650'000};
  costs.gather_ps = {450'000};
  costs.message_gather_ps = {60'000};
  costs.optimizer_ps = {300'000};
  costs.tensor_partial_ps = {20'000};
  costs.load_ps = {5'000};
  costs.tied_ps = 110'000;
  costs.norm_ps = 40'000;
  return make_cost_table(costs, program.pipeline, program.chunks);
}

/// Two steps of the clock over real messages against the simulation; random sleeps must not matter.
void expect_equal(comm::ProcessGrid& grid, const Program& program, const TimeOptions& time) {
  const CostTable table = uneven_table(program);
  SimulationOptions options;
  options.replicas = grid.shape().data;
  options.time = time;
  options.recorded_replica = grid.coord().data;
  const Simulation s = simulate(program, table, options);
  const auto position = static_cast<size_t>(grid.coord().pipeline);
  VirtualClock clock(program, table, time, grid.pipeline(), grid.data());
  std::mt19937 random(static_cast<unsigned>(grid.world_rank()));
  for (int step = 0; step < 2; ++step) {
    clock.start_step();
    for (int k = 0; k < static_cast<int>(program.positions[position].size()); ++k) {
      if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      clock.advance(k);
    }
    const StepTimes times = clock.finish_step();
    ASSERT_EQ(times.makespan_ps, s.makespan_ps) << program.schedule;
    ASSERT_EQ(times.span_ps, s.span_ps) << program.schedule;
    ASSERT_EQ(times.busy_ps + times.idle.total(), times.makespan_ps);
    if (options.replicas == 1 || !time.varies()) {
      ASSERT_EQ(times.idle, s.stages[position].idle) << program.schedule;
    }
    const std::vector<OpTime>& simulated = s.times[position];
    for (size_t k = 0; k < simulated.size(); ++k) {
      ASSERT_EQ(clock.times()[k], simulated[k]) << program.schedule << " op " << k;
    }
  }
}

TEST(VirtualClock, equals_the_simulator_for_every_schedule_and_grid) {
  const int world = test::session().size();
  for (const int d : {1, 2}) {
    for (const int t : {1, 2}) {
      if (world % (d * t) != 0 || world / (d * t) < 2) continue;
      comm::GridOptions options;
      options.shape.pipeline = world / (d * t);
      options.shape.data = d;
      options.shape.tensor = t;
      comm::ProcessGrid grid(test::session(), options);
      for (const ScheduleOptions& schedule : every_schedule(options.shape.pipeline, 2 * options.shape.pipeline)) {
        const Program program = rich_program(schedule);
        ASSERT_EQ(check(program), std::vector<std::string>());
        TimeOptions jittered;
        jittered.jitter = {0.2, 99};
        jittered.stragglers = {{{d - 1, 1}, 1.5}};
        for (const TimeOptions& time : {TimeOptions{}, jittered}) expect_equal(grid, program, time);
      }
    }
  }
}

}  // namespace
}  // namespace triax::parallel

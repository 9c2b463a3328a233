// Simulated times against the closed forms of the papers, the published bubble rates, and small cases by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"
#include "parallel/checker.h"
#include "parallel/dependencies.h"
#include "parallel/memory_effects.h"
#include "parallel/simulator.h"
#include "tests/unit/parallel_programs.h"

namespace triax::parallel {
namespace {

// 12 divides by every number of chunks here, so chunk costs are exact.
constexpr int64_t kUnit = 12'000'000;

Simulation simulate_schedule(const ScheduleOptions& options, const Costs& costs) {
  const Program program = program_of(options);
  return simulate(program, table_of(program, costs));
}

int64_t busy(int m, const Costs& c) { return m * (c.forward + c.input + c.weight); }

TEST(Simulate, OneFOneBAndGPipeMatchClosedForms) {
  const Costs costs{kUnit, kUnit, kUnit};
  for (const ScheduleKind kind : {ScheduleKind::OneFOneB, ScheduleKind::GPipe}) {
    for (int p = 1; p <= 16; ++p) {
      for (int m = 1; m <= 64; ++m) {
        const Simulation s = simulate_schedule(schedule_options(kind, p, 1, m), costs);
        ASSERT_EQ(s.makespan_ps, 3 * kUnit * (m + p - 1)) << name_of(kind) << " p" << p << " m" << m;
        ASSERT_EQ(s.span_ps, s.makespan_ps);
        ASSERT_NEAR(s.bubble_of_total, (p - 1.0) / (m + p - 1), 1e-12);
        ASSERT_NEAR(s.bubble_of_ideal, (p - 1.0) / m, 1e-12);
      }
    }
  }
}

TEST(Simulate, InterleavedMatchesClosedForms) {
  const Costs costs{kUnit, kUnit, kUnit};
  for (int p = 2; p <= 16; ++p) {
    for (int v = 2; v <= 4; ++v) {
      for (int m = p; m <= 64; m += p) {
        const Simulation s = simulate_schedule(schedule_options(ScheduleKind::Interleaved, p, v, m), costs);
        ASSERT_EQ(s.makespan_ps, busy(m, costs) + (p - 1) * 3 * kUnit / v) << "p" << p << " v" << v << " m" << m;
        ASSERT_NEAR(s.bubble_of_ideal, (p - 1.0) / (v * m), 1e-12);
      }
    }
  }
}

// T = (m+p-1)(f+b) + 2c[(p-1)m/p + (p-2)] and T = m(f+b) + (p-1)(f+b)/v + 2c(vp-1), c <= f/v, p | m.
TEST(Simulate, LatencyMatchesClosedForms) {
  for (int p = 2; p <= 16; ++p) {
    for (int m = p; m <= 64; m += p) {
      for (const int64_t c : {kUnit / 24, kUnit / 4}) {
        const Costs costs{kUnit, kUnit, kUnit, c};
        const Simulation plain = simulate_schedule(schedule_options(ScheduleKind::OneFOneB, p, 1, m), costs);
        ASSERT_EQ(plain.makespan_ps, 3 * kUnit * (m + p - 1) + 2 * c * ((p - 1) * (m / p) + p - 2)) << p << " " << m;
        for (int v = 2; v <= 4; ++v) {
          const Simulation s = simulate_schedule(schedule_options(ScheduleKind::Interleaved, p, v, m), costs);
          ASSERT_EQ(s.makespan_ps, busy(m, costs) + (p - 1) * 3 * kUnit / v + 2 * c * (v * p - 1))
              << "p" << p << " v" << v << " m" << m << " c" << c;
        }
      }
    }
  }
}

TEST(Simulate, GoldenTimesAndPeaks) {
  struct Golden {
    ScheduleOptions options;
    double time;
    double per_latency;
    std::vector<int> peaks;
  };
  const std::vector<Golden> golden{
      {schedule_options(ScheduleKind::OneFOneB, 4, 1, 8), 33, 16, {4, 3, 2, 1}},
      {schedule_options(ScheduleKind::Interleaved, 4, 2, 8), 28.5, 14, {11, 9, 7, 5}},
      {schedule_options(ScheduleKind::Interleaved, 4, 4, 8), 26.25, 30, {19, 17, 15, 13}},
      {schedule_options(ScheduleKind::Interleaved, 8, 3, 64), 199, 46, {31, 29, 27, 25, 23, 21, 19, 17}},
      {schedule_options(ScheduleKind::OneFOneB, 4, 1, 16), 57, 28, {4, 3, 2, 1}},
      {schedule_options(ScheduleKind::OneFOneB, 8, 1, 64), 213, 124, {8, 7, 6, 5, 4, 3, 2, 1}},
      {schedule_options(ScheduleKind::Interleaved, 8, 2, 16), 58.5, 30, {23, 21, 19, 17, 15, 13, 11, 9}}};
  for (const Golden& g : golden) {
    const Program program = program_of(g.options);
    const auto time = [&](double latency) {
      return static_cast<double>(
                 simulate(program, table_of(program, {kUnit, kUnit, kUnit, std::llround(latency * kUnit)}))
                     .makespan_ps) /
             kUnit;
    };
    EXPECT_DOUBLE_EQ(time(0), g.time);
    EXPECT_DOUBLE_EQ(time(0.25), g.time + 0.25 * g.per_latency);
    EXPECT_EQ(in_flight_peaks(program), g.peaks);
  }
}

TEST(Simulate, ZeroBubbleSpansAndPeaks) {
  const Costs costs{kUnit, kUnit, kUnit};
  for (int p = 2; p <= 16; ++p) {
    for (int m = 1; m <= 64; ++m) {
      const Program h1 = program_of(schedule_options(ScheduleKind::ZeroBubbleH1, p, 1, m));
      const Program h2 = program_of(schedule_options(ScheduleKind::ZeroBubbleH2, p, 1, m));
      const Program v = program_of(schedule_options(ScheduleKind::ZeroBubbleV, p, 2, m));
      if (m % 8 == 1) {
        for (const Program* program : {&h1, &h2, &v}) ASSERT_EQ(check(*program), std::vector<std::string>());
      }
      const int64_t ideal = busy(m, costs);
      if (m >= p) {  // (p-1)(F + I - W)
        ASSERT_EQ(simulate(h1, table_of(h1, costs)).span_ps, ideal + (p - 1) * kUnit) << "p" << p << " m" << m;
        ASSERT_EQ(in_flight_peaks(h1), std::vector<int>(static_cast<size_t>(p), p));
      }
      if (m >= 2 * p - 1) {  // (p-1)(F + I - 2W)
        ASSERT_EQ(simulate(h2, table_of(h2, costs)).span_ps, ideal) << "p" << p << " m" << m;
        ASSERT_EQ(in_flight_peaks(h2), std::vector<int>(static_cast<size_t>(p), 2 * p - 1));
      }
      if (m >= 2 * p) {
        ASSERT_EQ(simulate(v, table_of(v, costs)).span_ps, ideal) << "p" << p << " m" << m;
      }
      for (const int peak : in_flight_peaks(v)) ASSERT_LE(peak, 2 * p);
    }
  }
  const auto span = [&](ScheduleKind kind, int chunks) {
    return static_cast<double>(simulate_schedule(schedule_options(kind, 4, chunks, 8), costs).span_ps) / kUnit;
  };
  EXPECT_EQ(span(ScheduleKind::ZeroBubbleH1, 1), 27);
  EXPECT_EQ(span(ScheduleKind::ZeroBubbleH2, 1), 24);
  EXPECT_EQ(span(ScheduleKind::ZeroBubbleV, 2), 24);
}

// Bubbles with costs of the paper's kind: F > I > W.
TEST(Simulate, ZeroBubbleFormulasHoldForUnequalCosts) {
  const Costs costs{1852, 1808, 933};
  for (const int p : {4, 8, 16}) {
    const int m = 4 * p;
    EXPECT_EQ(simulate_schedule(schedule_options(ScheduleKind::ZeroBubbleH1, p, 1, m), costs).span_ps,
              busy(m, costs) + (p - 1) * (costs.forward + costs.input - costs.weight));
    EXPECT_EQ(simulate_schedule(schedule_options(ScheduleKind::ZeroBubbleH2, p, 1, m), costs).span_ps,
              busy(m, costs) + (p - 1) * (costs.forward + costs.input - 2 * costs.weight));
  }
}

// Tables 5 and 9 of arXiv 2401.10241: bubble rates from measured times.
TEST(Simulate, PublishedBubbleRates) {
  std::ifstream file(std::string(TRIAX_SOURCE_DIR) + "/../shared/papers/zerobubble_tables_4_5_9.csv");
  if (!file) GTEST_SKIP() << "the published table is not beside the source tree";
  const auto split = [](const std::string& line) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
    return cells;
  };
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> header = split(line);
  int rows = 0;
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = split(line);
    std::map<std::string, std::string> row;
    for (size_t i = 0; i < cells.size(); ++i) row[header[i]] = cells[i];
    const int p = std::stoi(row["p"]);
    const int m = std::stoi(row["m"]);
    const int v = std::stoi(row["1F1B-I chunks per device (one layer each)"]);
    const auto ps = [&](const char* name) { return std::llround(std::stod(row[name]) * 1e9); };
    const Costs costs{ps("T_F_ms"), ps("T_B_ms"), ps("T_W_ms"), ps("T_comm_ms")};
    const auto error = [&](ScheduleKind kind, int chunks, const char* name) {
      return simulate_schedule(schedule_options(kind, p, chunks, m), costs).bubble_of_total - std::stod(row[name]);
    };
    EXPECT_LT(std::abs(error(ScheduleKind::OneFOneB, 1, "bubble_1F1B")), 1e-4) << row["id"];
    EXPECT_LT(std::abs(error(ScheduleKind::Interleaved, v, "bubble_1F1B-I")), 4e-3) << row["id"];
    EXPECT_LT(std::abs(error(ScheduleKind::ZeroBubbleH1, 1, "bubble_ZB-H1")), 1e-4) << row["id"];
    EXPECT_LT(std::abs(error(ScheduleKind::ZeroBubbleH2, 1, "bubble_ZB-H2")), 1e-4) << row["id"];
    ++rows;
  }
  EXPECT_GE(rows, 6);
}

TEST(Simulate, UnevenStagesRunAtThePaceOfTheSlowest) {
  const Program program = program_of(schedule_options(ScheduleKind::OneFOneB, 3, 1, 32));
  UniformCosts costs;
  costs.forward_ps = {100, 150, 100};
  costs.backward_input_ps = {100, 150, 100};
  costs.backward_weight_ps = {100, 150, 100};
  const Simulation s = simulate(program, make_cost_table(costs, 3, 1));
  // The middle stage starts at 100, waits 150 for its first gradient and never again; then one B of the first stage.
  EXPECT_EQ(s.makespan_ps, 100 + 150 + 32 * 450 + 200);
  EXPECT_EQ(s.stages[1].busy_ps, 32 * 450);
  EXPECT_GT(s.stages[0].idle[IdleCause::Imbalance], 0);
  EXPECT_EQ(s.stages[1].idle[IdleCause::Imbalance], 0);
  costs.forward_ps = {1, 2};
  EXPECT_THROW(make_cost_table(costs, 3, 1), ConfigError);
}

// Two stages, one micro-batch, every cause once.
TEST(Simulate, IdleTimeIsSplitByCause) {
  ProgramOptions options = program_options(schedule_options(ScheduleKind::OneFOneB, 2, 1, 1));
  options.bucket_chunks = {{0}, {0}};
  options.tied_embedding = true;
  const Program program = make_training_program(options);
  UniformCosts costs;
  costs.forward_ps = {10};
  costs.backward_input_ps = {12};
  costs.backward_weight_ps = {8};
  costs.latency_ps = {3};
  costs.reduce_ps = {5};
  costs.optimizer_ps = {7};
  costs.tied_ps = 4;
  costs.norm_ps = 2;
  const Simulation s = simulate(program, make_cost_table(costs, 2, 1));
  // F0 0-10, wire 10-13, F 13-23, B 23-43, wire 43-46, B 46-66, tied 66-70, reduce 70-75, norm 75-77, optimizer 77-84.
  EXPECT_EQ(s.makespan_ps, 84);
  EXPECT_EQ(s.span_ps, 66);
  EXPECT_DOUBLE_EQ(s.bubble_of_total, 1 - 60.0 / (2 * 66));
  using C = IdleCause;
  const IdleSplit& first = s.stages[0].idle;
  const IdleSplit& last = s.stages[1].idle;
  EXPECT_EQ((std::vector<int64_t>{first[C::Fill], first[C::Drain], first[C::Imbalance], first[C::PeerToPeer],
                                  first[C::DataSync], first[C::Optimizer]}),
            (std::vector<int64_t>{33, 0, 0, 3, 9, 9}));
  EXPECT_EQ((std::vector<int64_t>{last[C::Fill], last[C::Drain], last[C::Imbalance], last[C::PeerToPeer],
                                  last[C::DataSync], last[C::Optimizer]}),
            (std::vector<int64_t>{10, 23, 0, 3, 9, 9}));
}

TEST(Simulate, BusyAndIdleFillTheMakespanAndDependenciesHold) {
  for (const ScheduleOptions& schedule : every_schedule(4, 8)) {
    ProgramOptions options = program_options(schedule);
    options.recompute = RecomputeOps::Separate;
    options.tied_embedding = true;
    options.tensor_partial = true;
    options.bucket_chunks.assign(4, {schedule.chunks - 1, 0});
    options.gathered.assign(4, {{0, schedule.chunks - 1}, {1, 0}});
    options.messages = Messages::Scattered;
    const Program program = make_training_program(options);
    ASSERT_EQ(check(program), std::vector<std::string>()) << program.schedule;
    UniformCosts costs{{101, 103, 97, 140}, {110}, {90}, {50}, {400}, {77}, {29}, {3}, {5}, {7}, {13}, {}, 0, 31, 17};
    const CostTable table = make_cost_table(costs, 4, schedule.chunks);
    const Simulation s = simulate(program, table);
    for (const StageTimes& stage : s.stages) {
      EXPECT_EQ(stage.busy_ps + stage.idle.total(), s.makespan_ps) << program.schedule;
    }
    const Dependencies dependencies(program);
    for (int i = 0; i < 4; ++i) {
      const auto& ops = program.positions[static_cast<size_t>(i)];
      for (int k = 0; k < static_cast<int>(ops.size()); ++k) {
        const OpTime& time = s.times[static_cast<size_t>(i)][static_cast<size_t>(k)];
        const bool receive = is_receive(ops[static_cast<size_t>(k)].kind);
        for (const OpRef& ref : dependencies.of({i, k})) {
          const OpTime& before = s.times[static_cast<size_t>(ref.position)][static_cast<size_t>(ref.index)];
          EXPECT_LE(before.stop_ps, receive ? time.stop_ps : time.start_ps);
        }
        EXPECT_LE(time.stop_ps, s.makespan_ps);
      }
    }
  }
}

TEST(Simulate, JitterDependsOnSeedLaneAndOpOnlyAndReplicasMeetAtTheReduction) {
  ProgramOptions options = program_options(schedule_options(ScheduleKind::Interleaved, 4, 2, 8));
  options.bucket_chunks.assign(4, {1, 0});
  const Program program = make_training_program(options);
  const CostTable table = table_of(program, {kUnit, kUnit, kUnit, kUnit / 100});
  SimulationOptions one;
  one.replicas = 8;
  one.time.jitter = {0.1, 7};
  const Simulation a = simulate(program, table, one);
  const Simulation b = simulate(program, table, one);
  EXPECT_EQ(a.makespan_ps, b.makespan_ps);
  EXPECT_EQ(a.times, b.times);
  SimulationOptions other = one;
  other.time.jitter.seed = 8;
  EXPECT_NE(simulate(program, table, other).makespan_ps, a.makespan_ps);
  // The makespan is that of the slowest replica, to the picosecond: nothing else couples replicas that reduce at the
  // end.
  int64_t slowest = 0;
  for (int replica = 0; replica < 8; ++replica) {
    SimulationOptions record = one;
    record.recorded_replica = replica;
    const Simulation s = simulate(program, table, record);
    EXPECT_EQ(s.makespan_ps, a.makespan_ps);
    for (const auto& times : s.times) slowest = std::max(slowest, times[times.size() - 3].start_ps);
  }
  EXPECT_EQ(slowest, a.makespan_ps);
  // Mean-one jitter: the busy time of 8 replicas stays near the nominal one.
  EXPECT_NEAR(static_cast<double>(a.stages[0].busy_ps) / (24.0 * kUnit), 1.0, 0.02);
}

TEST(Simulate, StragglerSlowsItsOwnReplicaAndTheStep) {
  ProgramOptions options = program_options(schedule_options(ScheduleKind::OneFOneB, 4, 1, 64));
  options.bucket_chunks.assign(4, {0});
  const Program program = make_training_program(options);
  const CostTable table = table_of(program, {kUnit, kUnit, kUnit});
  SimulationOptions slow;
  slow.replicas = 4;
  slow.time.stragglers = {{{2, 1}, 2.0}};
  const Simulation s = simulate(program, table, slow);
  // As above: one F of stage 0, a wait of 2 for the first gradient, 64 slow micro-batches, one B of stage 0.
  EXPECT_EQ(s.makespan_ps, (1 + 2 + 64 * 6 + 2) * kUnit);
  SimulationOptions wrong = slow;
  wrong.time.stragglers = {{{4, 1}, 2.0}};
  EXPECT_THROW(simulate(program, table, wrong), ConfigError);
}

TEST(Simulate, BandwidthAndLinksHaveTheirOwnTimes) {
  const Program program = program_of(schedule_options(ScheduleKind::OneFOneB, 3, 1, 1));
  UniformCosts costs;
  costs.forward_ps = {1000};
  costs.backward_input_ps = {1000};
  costs.backward_weight_ps = {1000};
  costs.latency_ps = {10, 20, 99};
  costs.bytes_per_s = {1e12, 2e12, 1e12};
  costs.message_bytes = 100;  // 100 ps and 50 ps
  EXPECT_EQ(simulate(program, make_cost_table(costs, 3, 1)).makespan_ps, 9000 + 2 * (110 + 70));
}

TEST(Simulate, RefusesAProgramThatCannotGoOnAndATableOfAnotherShape) {
  Program program = program_of(schedule_options(ScheduleKind::OneFOneB, 2, 1, 2));
  EXPECT_THROW(simulate(program, table_of(program_of(schedule_options(ScheduleKind::OneFOneB, 4, 1, 2)), {1, 1, 1})),
               ConfigError);
  std::erase_if(program.positions[0], [](const Op& op) { return op.kind == OpKind::SendActivation; });
  EXPECT_THROW(simulate(program, table_of(program, {1, 1, 1})), std::logic_error);
}

}  // namespace
}  // namespace triax::parallel

// Costs as text, cost keys, and every closed form against the simulation wherever it claims to hold.
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/closed_form.h"
#include "parallel/cost_text.h"
#include "parallel/simulator.h"
#include "tests/unit/parallel_programs.h"

namespace triax::parallel {
namespace {

constexpr int64_t kSecond = 1'000'000'000'000;

TEST(ParseCosts, ReadsNamesListsAndDefaults) {
  const TextCosts one = parse_costs("F=1,I=0.5,P2P=0.25", 4, 8);
  EXPECT_EQ(one.unit_ps, kSecond);
  EXPECT_EQ(one.costs.forward_ps, (std::vector<int64_t>{kSecond}));
  EXPECT_EQ(one.costs.backward_input_ps, (std::vector<int64_t>{kSecond / 2}));
  EXPECT_EQ(one.costs.backward_weight_ps, (std::vector<int64_t>{kSecond}));
  EXPECT_EQ(one.costs.latency_ps, (std::vector<int64_t>{kSecond / 4}));
  const TextCosts lists = parse_costs("F=1,2,1,1,B=4:2:2:2,OPT=3,BYTES=1000,BANDWIDTH=500", 4, 8);
  EXPECT_EQ(lists.costs.forward_ps, (std::vector<int64_t>{kSecond, 2 * kSecond, kSecond, kSecond}));
  EXPECT_EQ(lists.costs.backward_weight_ps, (std::vector<int64_t>{2 * kSecond, kSecond, kSecond, kSecond}));
  EXPECT_EQ(lists.costs.message_bytes, 1000);
  EXPECT_EQ(make_cost_table(lists.costs, 4, 1).link(0, 1).time_ps(1000), 2 * kSecond);
  EXPECT_EQ(parse_costs("", 2, 4).costs.forward_ps, (std::vector<int64_t>{kSecond}));
  // Large values take a smaller unit instead of an overflow.
  EXPECT_LT(parse_costs("F=1e7", 64, 512).unit_ps, kSecond);
}

TEST(ParseCosts, FaultsNameTheWord) {
  const auto error_of = [](const std::string& text) {
    try {
      static_cast<void>(make_cost_table(parse_costs(text, 4, 8).costs, 4, 1));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(error_of("F=1,X=2").find("\"X\" is no cost; known are F, I, W, B"), std::string::npos);
  EXPECT_NE(error_of("F=a").find("\"a\" must be a number of at least 0"), std::string::npos);
  EXPECT_NE(error_of("F=-1").find("\"-1\" must be"), std::string::npos);
  EXPECT_NE(error_of("F=nan").find("\"nan\" must be"), std::string::npos);
  EXPECT_NE(error_of("1,F=2").find("\"1\" has no name"), std::string::npos);
  EXPECT_NE(error_of("B=2,I=1").find("give B, or I and W"), std::string::npos);
  EXPECT_NE(error_of("F=1,2").find("--cost F: 2 values for 4 pipeline stages"), std::string::npos);
  EXPECT_NE(error_of("NORM=1,2").find("NORM takes one value"), std::string::npos);
  EXPECT_NE(error_of("F=1e300").find("too large"), std::string::npos);
}

TEST(CostTable, ChunksOfAStageSumToItsCost) {
  UniformCosts costs;
  costs.forward_ps = {100};
  costs.backward_input_ps = {101};
  costs.backward_weight_ps = {7};
  const CostTable table = make_cost_table(costs, 2, 3);
  for (int i = 0; i < 2; ++i) {
    StageCost sum;
    for (int c = 0; c < 3; ++c) {
      sum.forward_ps += table.stage(i, c).forward_ps;
      sum.backward_input_ps += table.stage(i, c).backward_input_ps;
      sum.backward_weight_ps += table.stage(i, c).backward_weight_ps;
    }
    EXPECT_EQ(sum, (StageCost{100, 101, 7, 0}));
  }
}

TEST(CostKey, EqualKeysCostTheSameAndHaveAName) {
  ProgramOptions options = program_options(schedule_options(ScheduleKind::Interleaved, 2, 2, 2));
  options.bucket_chunks = {{1, 0}, {1, 0}};
  const Program program = make_training_program(options);
  std::vector<std::string> names;
  for (const Op& op : program.positions[0]) names.push_back(text_of(cost_key(program, 0, op)));
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  for (const char* name :
       {"F/0/0", "F/0/1", "B/0/0", "SEND_F/0>1", "RECV_B/0<1", "REDUCE_GRAD/0/b1", "NORM/0", "OPT/0"}) {
    EXPECT_TRUE(has(name)) << name;
  }
  EXPECT_EQ(cost_key(program, 0, program.positions[0][1]), cost_key(program, 0, program.positions[0][4]));
}

TEST(ClosedForm, EqualsTheSimulationWhereItClaimsToHold) {
  int claims = 0;
  for (const Costs& costs : {Costs{12, 12, 12, 0}, Costs{1200, 1440, 600, 0}, Costs{1200, 1440, 600, 300},
                             Costs{24, 12, 36, 4}, Costs{3600, 1200, 1200, 0}}) {
    for (int p = 2; p <= 8; ++p) {
      for (int m = 1; m <= 4 * p; ++m) {
        for (const ScheduleOptions& schedule : every_schedule(p, m)) {
          if (!check_schedule(schedule).empty()) continue;
          const auto span = closed_form_span_ps(schedule, {costs.forward, costs.input, costs.weight, 0}, costs.latency);
          if (!span) continue;
          ++claims;
          const Program program = program_of(schedule);
          ASSERT_EQ(simulate(program, table_of(program, costs)).span_ps, *span)
              << name_of(schedule.kind) << " p" << p << " m" << m << " F" << costs.forward << " c" << costs.latency;
        }
      }
    }
  }
  EXPECT_GT(claims, 1500);
}

}  // namespace
}  // namespace triax::parallel

// Schedules as files: round trips of every schedule, tolerated actions, errors that name row and column; passes.
#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/checker.h"
#include "parallel/csv_schedule.h"
#include "parallel/program_passes.h"
#include "parallel/program_print.h"
#include "parallel/simulator.h"
#include "tests/unit/parallel_programs.h"

namespace triax::parallel {
namespace {

std::string error_of(const std::string& text) {
  try {
    static_cast<void>(parse_csv_schedule(text, "s.csv"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(CsvSchedule, EveryScheduleComesBack) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int m : {p, 3 * p}) {
      for (const ScheduleOptions& schedule : every_schedule(p, m)) {
        const Program program = program_of(schedule);
        for (const CsvActions actions : {CsvActions::Compute, CsvActions::All}) {
          const ScheduleOptions read = parse_csv_schedule(csv_of(program, actions), "s.csv");
          ASSERT_EQ(read.pipeline, p);
          ASSERT_EQ(read.chunks, schedule.chunks);
          ASSERT_EQ(read.num_micro_batches, m);
          for (int i = 0; i < p; ++i) ASSERT_EQ(compute_order(read, i), compute_order(schedule, i));
          const Program again = program_of(read);
          for (int i = 0; i < p; ++i) {
            for (int c = 0; c < schedule.chunks; ++c) {
              ASSERT_EQ(again.layers.virtual_stage(i, c), program.layers.virtual_stage(i, c));
              ASSERT_EQ(again.layers.layers(i, c), program.layers.layers(i, c));
            }
          }
          ASSERT_EQ(again.positions, program.positions);  // the passes put the same messages in
          ASSERT_EQ(check(again), std::vector<std::string>());
          ASSERT_EQ(csv_of(again, CsvActions::Compute), csv_of(program, CsvActions::Compute));
        }
      }
    }
  }
}

TEST(CsvSchedule, ReadsTheExampleForms) {
  // Two ranks, stages 0 and 3 on the first, as PyTorch writes lowered schedules.
  const ScheduleOptions read = parse_csv_schedule(
      "# a comment\n0UNSHARD,0F0,0SEND_F0, ,3RECV_F0,3F0,3I0,3SEND_B0,3W0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\r\n\n"
      "1RECV_F0,1F0,2F0,2RECV_B0,2B0,1B0,1SEND_B0\n",
      "s.csv");
  EXPECT_EQ(read.pipeline, 2);
  EXPECT_EQ(read.chunks, 2);
  EXPECT_EQ(read.listed_stages, (std::vector<int>{0, 3, 1, 2}));
  const Program program = program_of(read);
  EXPECT_EQ(check(program), std::vector<std::string>());
  EXPECT_EQ(list_of(program, ShowOps::Compute), "Rank 0: 0F0 3F0 3I0 3W0 0B0\nRank 1: 1F0 2F0 2B0 1B0\n");
  // Stages 1 and 2 share a rank: no message between them.
  EXPECT_EQ(csv_of(program, CsvActions::All),
            "0F0,0SEND_F0,3RECV_F0,3F0,3I0,3SEND_B0,3W0,0RECV_B0,0B0\n"
            "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2B0,1B0,1SEND_B0\n");
}

TEST(CsvSchedule, ErrorsNameRowAndColumn) {
  EXPECT_EQ(error_of("0F0,0B0\n1F0,1X0\n").substr(0, 35), "s.csv: row 2, column 2: \"1X0\" is no");
  EXPECT_NE(error_of("0F0,F1\n").find("row 1, column 2: \"F1\" is no action"), std::string::npos);
  EXPECT_NE(error_of("0F0,0F1x\n").find("row 1, column 2: \"0F1x\" is no action"), std::string::npos);
  EXPECT_NE(error_of("0F0,0F\n").find("row 1, column 2"), std::string::npos);
  EXPECT_NE(error_of("0F99999999999\n").find("row 1, column 1"), std::string::npos);
  EXPECT_NE(error_of("0F0,0B0\n\n1F0,0B0\n").find("row 3, column 2: \"0B0\" runs stage 0, which row 1 runs already"),
            std::string::npos);
  EXPECT_NE(error_of("0F0,1F0\n2F0\n").find("row 2 runs 1 stages, row 1 runs 2"), std::string::npos);
  EXPECT_NE(error_of("0F0\n2F0\n").find("row 2: stage 2 appears, but no row runs stage 1"), std::string::npos);
  EXPECT_NE(error_of("0F0,0F2\n").find("micro-batch 2 appears, but micro-batch 1 is on no row"), std::string::npos);
  EXPECT_NE(error_of("(0F0;0B0)OVERLAP_F_B\n").find("row 1, column 1"), std::string::npos);
  EXPECT_NE(error_of("\n \n").find("s.csv: the schedule is empty"), std::string::npos);
}

TEST(CsvSchedule, ContradictingOptionsAreRefusedAndBadOrdersAreForTheChecker) {
  ScheduleOptions read = parse_csv_schedule("0F0,0B0\n1F0,1B0\n", "s.csv");
  read.num_micro_batches = 2;  // of the run: the file has only one
  EXPECT_EQ(check_schedule(read), "");
  EXPECT_NE(check(program_of(read)), std::vector<std::string>());
  read.num_micro_batches = 1;
  read.pipeline = 4;
  EXPECT_NE(check_schedule(read).find("2 rows"), std::string::npos);
  read.pipeline = 2;
  read.chunks = 2;
  EXPECT_NE(check_schedule(read).find("1 virtual stages per rank, not 2"), std::string::npos);
  const std::vector<std::string> faults = check(program_of(parse_csv_schedule("0F0,0B0\n1B0,1F0\n", "s.csv")));
  ASSERT_FALSE(faults.empty());
  EXPECT_NE(faults[0].find("position 1, op "), std::string::npos);
}

TEST(SplitBackward, LagsByMicroBatchesAndLosesNone) {
  const std::vector<Op> whole = compute_order(schedule_options(ScheduleKind::OneFOneB, 4, 1, 6), 1);
  const auto text = [](const std::vector<Op>& ops) {
    std::string out;
    for (const Op& op : ops) out += name_of(op.kind) + std::to_string(op.micro_batch) + " ";
    return out;
  };
  EXPECT_EQ(text(split_backward(whole, 0)), "F0 F1 F2 I0 W0 F3 I1 W1 F4 I2 W2 F5 I3 W3 I4 W4 I5 W5 ");
  EXPECT_EQ(text(split_backward(whole, 2)), "F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5 ");
  EXPECT_EQ(text(insert_recompute(compute_order(schedule_options(ScheduleKind::GPipe, 2, 1, 2), 0))),
            "F0 F1 R0 B0 R1 B1 ");
}

TEST(ZeroBubble, OrdersByHand) {
  const auto text = [](ScheduleKind kind, int chunks, int position, int m) {
    const Program program = program_of(schedule_options(kind, 3, chunks, m));
    std::string out;
    for (const Op& op : program.positions[static_cast<size_t>(position)]) {
      if (is_compute(op.kind)) out += text_of(program.layers, position, op) + " ";
    }
    return out;
  };
  using K = ScheduleKind;
  EXPECT_EQ(text(K::ZeroBubbleH1, 1, 0, 4), "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3 ");
  EXPECT_EQ(text(K::ZeroBubbleH1, 1, 2, 4), "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3 ");
  EXPECT_EQ(text(K::ZeroBubbleH2, 1, 1, 4), "1F0 1F1 1F2 1I0 1F3 1I1 1I2 1W0 1I3 1W1 1W2 1W3 ");
  EXPECT_EQ(text(K::ZeroBubbleV, 2, 2, 3), "2F0 3F0 2F1 3F1 2F2 3F2 3I0 3W0 2I0 3I1 2I1 3I2 2I2 2W0 3W1 3W2 2W1 2W2 ");
}

TEST(Hash, SeesPlacementAndKnowsThatOldSchedulesHaveNone) {
  const Program looped = program_of(schedule_options(ScheduleKind::OneFOneB, 4, 1, 8));
  EXPECT_EQ(hash_of(looped), 9752238279275934125u);  // the same on every machine and in every version
  Program v = program_of(schedule_options(ScheduleKind::ZeroBubbleV, 4, 2, 8));
  const uint64_t hash = hash_of(v);
  v.layers.placement = Placement::Looped;
  EXPECT_NE(hash, hash_of(v));
}

}  // namespace
}  // namespace triax::parallel

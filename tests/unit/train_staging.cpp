// How many messages under way a program needs, when a message leaves only for a posted receive.
#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/schedule.h"
#include "train/staging.h"

namespace triax::train {
namespace {

using parallel::ScheduleKind;

parallel::Program program_of(const parallel::ScheduleOptions& schedule) {
  parallel::ProgramOptions options;
  options.schedule = schedule;
  options.layers = parallel::make_layer_map(int64_t{schedule.pipeline} * schedule.chunks,
                                            parallel::placement_of(schedule), 0, 0, {});
  return parallel::make_training_program(options);
}

TEST(StagingBuffers, two_do_for_schedules_without_long_groups) {
  for (const ReceiveAhead ahead : {ReceiveAhead::None, ReceiveAhead::OneAhead}) {
    for (int p = 1; p <= 8; ++p) {
      for (const int m : {1, p, 3 * p + 1}) {
        EXPECT_EQ(staging_buffers(program_of({ScheduleKind::GPipe, p, 1, m}), ahead), 2);
        EXPECT_EQ(staging_buffers(program_of({ScheduleKind::OneFOneB, p, 1, m}), ahead), 2);
      }
      if (p > 1) {
        EXPECT_EQ(staging_buffers(program_of({ScheduleKind::ZeroBubbleH1, p, 1, 2 * p}), ahead), 2);
      }
      for (int v = 2; p > 1 && v <= 4; ++v) {
        EXPECT_EQ(staging_buffers(program_of({ScheduleKind::Interleaved, p, v, 2 * p}), ahead), 2) << p << " " << v;
      }
    }
  }
}

TEST(StagingBuffers, long_groups_need_more) {
  // Stage 1 of 2 has 8 - 2 + 1 = 7 activations ready before stage 0 receives the first; one receive may be posted.
  const auto interleaved = [](int p, int group) { return program_of({ScheduleKind::Interleaved, p, 2, group, group}); };
  EXPECT_GT(staging_buffers(interleaved(2, 8), ReceiveAhead::None), 2);
  EXPECT_GT(staging_buffers(interleaved(2, 8), ReceiveAhead::OneAhead), 2);
  EXPECT_GT(staging_buffers(interleaved(2, 16), ReceiveAhead::OneAhead),
            staging_buffers(interleaved(2, 8), ReceiveAhead::OneAhead));
  for (int p = 2; p <= 8; ++p) {
    for (int group = p; group <= 4 * p; ++group) {
      const int needed = staging_buffers(interleaved(p, group), ReceiveAhead::None);
      EXPECT_GE(needed, 2);
      EXPECT_LE(needed, std::max(2, group - p + 1)) << p << " " << group;
    }
  }
}

TEST(Lanes, every_schedule_keeps_the_order_of_messages) {
  for (int p = 2; p <= 8; ++p) {
    for (const int m : {p, 2 * p, 3 * p + 1}) {
      EXPECT_EQ(lane_fault(program_of({ScheduleKind::GPipe, p, 1, m})), "");
      EXPECT_EQ(lane_fault(program_of({ScheduleKind::OneFOneB, p, 1, m})), "");
    }
    for (const ScheduleKind kind : {ScheduleKind::ZeroBubbleH1, ScheduleKind::ZeroBubbleH2}) {
      EXPECT_EQ(lane_fault(program_of({kind, p, 1, 3 * p})), "") << p;
    }
    EXPECT_EQ(lane_fault(program_of({ScheduleKind::ZeroBubbleV, p, 2, 3 * p})), "") << p;
    for (int v = 2; v <= 4; ++v) {
      EXPECT_EQ(lane_fault(program_of({ScheduleKind::Interleaved, p, v, 2 * p})), "") << p << " " << v;
      EXPECT_EQ(lane_fault(program_of({ScheduleKind::Interleaved, p, v, 4 * p, 2 * p})), "") << p << " " << v;
    }
  }
}

TEST(Lanes, a_message_out_of_order_or_to_a_stranger_is_named) {
  parallel::Program program = program_of({ScheduleKind::GPipe, 4, 1, 4});
  std::vector<parallel::Op>& ops = program.positions[1];
  std::vector<parallel::Op*> receives;
  for (parallel::Op& op : ops) {
    if (op.kind == parallel::OpKind::RecvActivation) receives.push_back(&op);
  }
  std::swap(receives[0]->match, receives[1]->match);
  EXPECT_EQ(lane_fault(program), "position 1 takes activations of position 0 in another order than they are sent in");
  receives[0]->peer_offset = 2;
  EXPECT_EQ(lane_fault(program), "positions 1 and 3 are not neighbours");
}

TEST(StagingBuffers, none_are_enough_for_a_program_that_cannot_run) {
  parallel::Program program = program_of({ScheduleKind::OneFOneB, 2, 1, 2});
  std::erase_if(program.positions[0],
                [](const parallel::Op& op) { return op.kind == parallel::OpKind::SendActivation; });
  EXPECT_EQ(staging_buffers(program, ReceiveAhead::OneAhead), 0);
}

}  // namespace
}  // namespace triax::train

// The table at the end of a run counts training steps alone.
#include <gtest/gtest.h>

#include "train/communication_table.h"

namespace triax::train {
namespace {

using comm::Operation;

TEST(StepCommunication, learns_afterwards_how_long_operations_waited_for_their_last_member) {
  comm::Ledger ledger;
  StepCommunication steps;
  ledger.record_waited("dp", Operation::AllReduce, nullptr, 5);  // of something before
  steps.enter(ledger);
  for (int i = 0; i < 4; ++i) {
    ledger.record("dp", Operation::AllReduce, 1000, 1000, 0);
    ledger.record_seconds("dp", Operation::AllReduce, nullptr, 0.5, 0.25);
  }
  steps.leave(ledger);
  ledger.record("dp.host", Operation::AllGather, 8, 8, 1);  // how it is learned
  ledger.record_waited("dp", Operation::AllReduce, nullptr, 0.125);
  ledger.record_waited("dp", Operation::AllReduce, nullptr, 0.375);
  steps.add_waited(ledger);
  const std::vector<CommunicationRow> rows = own_communication(steps);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].busy_s, 2);
  EXPECT_EQ(rows[0].waited_s, 0.5);
  EXPECT_EQ(rows[0].met_calls, 2);
  // Two of four calls are known; 4000 bytes moved in the rest of 2 s: 1 s a step of two.
  EXPECT_NE(communication_json(rows, 2).find("\"busy_ms\":1000.0,\"waited_ms\":500.0,"), std::string::npos)
      << communication_json(rows, 2);
}

TEST(StepCommunication, counts_what_lies_between_enter_and_leave) {
  comm::Ledger ledger;
  StepCommunication steps;
  const auto step = [&] {
    steps.enter(ledger);
    ledger.set_label("mlp");
    ledger.record("tp", Operation::AllReduce, 1000, 1500, 0.25);
    ledger.record_exposed("tp", Operation::AllReduce, 0.125);
    ledger.set_label(nullptr);
    ledger.record_counted("dp", Operation::ReduceScatter, 400, {100, 200}, 0.5);
  };
  ledger.record("world", Operation::Broadcast, 7000, 7000, 1);  // start-up
  ledger.record_counted("dp", Operation::ReduceScatter, 800, {1, 2}, 0.5);
  step();
  step();
  steps.leave(ledger);
  ledger.set_label("mlp");
  ledger.record("tp", Operation::AllReduce, 50, 50, 3);  // an evaluation
  ledger.set_label(nullptr);
  steps.leave(ledger);
  step();
  ledger.record("dp", Operation::AllGather, 0, 0, 0);
  steps.leave(ledger);

  const std::vector<CommunicationRow> rows = own_communication(steps);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].group, "tp");
  EXPECT_EQ(rows[0].kind, "");
  EXPECT_EQ(rows[0].calls, 3);
  EXPECT_EQ(rows[0].payload_bytes, 3000);
  EXPECT_EQ(rows[0].sent_bytes, 4500);
  EXPECT_EQ(rows[0].busy_s, 0.75);
  EXPECT_EQ(rows[0].exposed_s, 0.375);
  EXPECT_TRUE(rows[0].converted);
  EXPECT_EQ(rows[1].kind, "mlp");
  EXPECT_EQ(rows[1].calls, 3);
  EXPECT_EQ(rows[1].sent_bytes, 4500);
  EXPECT_EQ(rows[2].op, Operation::AllGather);
  EXPECT_EQ(rows[3].group, "dp");
  EXPECT_EQ(rows[3].calls, 3);
  EXPECT_EQ(rows[3].sent_bytes, 900);
  EXPECT_FALSE(rows[3].converted);
}

}  // namespace
}  // namespace triax::train

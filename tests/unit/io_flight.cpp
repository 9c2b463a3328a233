// The flight recorder's file read back, and who is blamed for what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/flight_recorder.h"
#include "comm/ledger.h"
#include "io/trace/blame.h"
#include "parallel/program.h"
#include "tests/unit/temporary_directory.h"

namespace triax::io {
namespace {

using test::TemporaryDirectory;
using testing::HasSubstr;

FlightRecorder::Entry op_entry(parallel::OpKind kind, int64_t index, int micro_batch) {
  FlightRecorder::Entry entry;
  entry.kind = FlightKind::Op;
  entry.code = static_cast<uint8_t>(kind);
  entry.number = index;
  entry.micro_batch = micro_batch;
  entry.chunk = 0;
  return entry;
}

FlightRecorder::Entry call(FlightRecorder& recorder, comm::Operation operation, int64_t number, const char* group,
                           FlightLane lane = FlightLane::Caller) {
  return {FlightKind::Communication, static_cast<uint8_t>(operation), lane, recorder.name_index(group), number};
}

/// A rank of a job of `world` that has done op 4 of step 3 and is in op 5, a forward.
void work(FlightRecorder& recorder, int rank, int world) {
  recorder.set_rank(rank, world, "node7", 2.5);
  recorder.set_place("tp 0 pp 1 dp 0");
  recorder.set_iteration(2);
  recorder.set_step(3);
  recorder.begin(op_entry(parallel::OpKind::RecvActivation, 4, 1));
  recorder.begin(call(recorder, comm::Operation::Recv, 17, "pp"));
  recorder.end(call(recorder, comm::Operation::Recv, 17, "pp"));
  recorder.end(op_entry(parallel::OpKind::RecvActivation, 4, 1));
  recorder.begin(op_entry(parallel::OpKind::Forward, 5, 1));
}

TEST(FlightRecorder, groups_beyond_its_room_share_a_name_of_their_own) {
  FlightRecorder recorder;
  for (int i = 0; i < 63; ++i) EXPECT_EQ(recorder.name_index("group " + std::to_string(i)), i);
  EXPECT_EQ(recorder.name_index("group 63"), 63);
  EXPECT_EQ(recorder.name_index("group 64"), 63);
  EXPECT_EQ(recorder.name_index("group 62"), 62);
  EXPECT_STREQ(recorder.header().names[63].data(), "other groups");
}

TEST(FlightRecorder, is_read_back_with_what_was_recorded_before_the_file) {
  const TemporaryDirectory directory;
  FlightRecorder recorder;
  work(recorder, 2, 4);
  recorder.attach(directory.path());
  recorder.begin(call(recorder, comm::Operation::AllReduce, 8, "tp"));
  const FlightRank rank = read_flight(flight_path(directory.path(), 2));
  EXPECT_EQ(rank.rank, 2);
  EXPECT_EQ(rank.world, 4);
  EXPECT_EQ(rank.host, "node7");
  EXPECT_EQ(rank.timeout_s, 2.5);
  EXPECT_EQ(rank.iteration, 2);
  EXPECT_EQ(rank.rows.size(), 6);
  const FlightState state = state_of(rank);
  EXPECT_EQ(describe(*state.last_op), "step 3 op 4 RECV_F micro-batch 1");
  EXPECT_EQ(describe(*state.op()), "step 3 op 5 F micro-batch 1");
  EXPECT_EQ(describe(*state.waits()), "all_reduce #8 of tp");
  recorder.end(call(recorder, comm::Operation::AllReduce, 8, "tp"));
  EXPECT_EQ(state_of(read_flight(rank.path)).waits(), nullptr);
}

TEST(FlightRecorder, outlives_a_process_that_is_killed) {
  const TemporaryDirectory directory;
  const pid_t child = fork();
  if (child == 0) {
    FlightRecorder recorder;
    recorder.set_rank(0, 1, "here", 1);
    recorder.attach(directory.path());
    recorder.set_step(9);
    recorder.begin(op_entry(parallel::OpKind::OptimizerStep, 3, 0));
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  const FlightState state = state_of(read_flights(directory.path()).at(0));
  ASSERT_NE(state.op(), nullptr);
  EXPECT_EQ(describe(*state.op()), "step 9 op 3 OPT");
}

TEST(FlightRecorder, keeps_the_last_records_of_several_threads) {
  const TemporaryDirectory directory;
  FlightRecorder recorder;
  recorder.set_rank(0, 1, "here", 1);
  recorder.attach(directory.path());
  const FlightRecorder::Entry of_thread = call(recorder, comm::Operation::Send, 1, "dp", FlightLane::CommThread);
  constexpr int kEach = 3 * static_cast<int>(kFlightRecords);
  std::thread other([&] {
    for (int i = 0; i < kEach; ++i) recorder.begin(of_thread);
  });
  for (int i = 0; i < kEach; ++i) recorder.begin(op_entry(parallel::OpKind::Forward, i, 0));
  other.join();
  const FlightRank rank = read_flight(flight_path(directory.path(), 0));
  ASSERT_EQ(rank.rows.size(), kFlightRecords);
  EXPECT_EQ(rank.rows.back().ticket, 2u * kEach);
  EXPECT_EQ(rank.rows.front().ticket, 2u * kEach - kFlightRecords + 1);
}

TEST(FlightRecorder, a_record_cut_off_while_it_was_written_is_left_out) {
  const TemporaryDirectory directory;
  FlightRecorder recorder;
  work(recorder, 0, 1);
  recorder.attach(directory.path());
  const std::string path = flight_path(directory.path(), 0);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(kFlightHeaderBytes + 4 * sizeof(FlightRecord));
  const uint64_t none = 0;
  file.write(reinterpret_cast<const char*>(&none), sizeof(none));
  file.close();
  EXPECT_EQ(read_flight(path).rows.size(), 4);
}

TEST(FlightRecorder, other_files_are_refused) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(flight_directory(directory.path()));
  std::ofstream(flight_path(directory.path(), 0)) << "no recorder";
  EXPECT_THROW(read_flights(directory.path()), RunTimeError);
  EXPECT_THROW(read_flights(directory.path() + "/nothing"), ConfigError);
}

/// Four ranks at work, with what is set on top.
class BlameTest : public testing::Test {
 protected:
  BlameTest() {
    for (int r = 0; r < 4; ++r) {
      FlightRecorder recorder;
      work(recorder, r, 4);
      recorder.attach(directory_.path());
    }
    ranks_ = read_flights(directory_.path());
    for (FlightRank& r : ranks_) r.supervised = true;
  }
  FlightRank& rank(int r) { return ranks_[static_cast<size_t>(r)]; }
  void end(int r, EndKind kind, int value, double after_s) {
    rank(r).end = kind;
    rank(r).end_value = value;
    rank(r).end_s = rank(r).start_s + after_s;
  }
  void fail(int r, FailureKind kind, const char* words, double after_s) {
    rank(r).failure = {kind, rank(r).start_s + after_s, words};
  }
  void waits(int r, double after_s) {
    FlightRow row;
    row.kind = FlightKind::Communication;
    row.code = static_cast<uint8_t>(comm::Operation::AllReduce);
    row.group = "dp";
    row.number = 3;
    row.time_s = rank(r).start_s + after_s;
    rank(r).rows.push_back(row);
  }
  void expect(Verdict verdict, int r, const char* words) {
    const Blame blame = find_blame(ranks_);
    EXPECT_EQ(name_of(blame.verdict), std::string(name_of(verdict)));
    EXPECT_EQ(blame.rank, r);
    EXPECT_THAT(blame.reason, HasSubstr(words));
  }
  TemporaryDirectory directory_;
  std::vector<FlightRank> ranks_;
};

TEST_F(BlameTest, the_first_death_counts_not_those_that_the_launcher_brought_about) {
  end(0, EndKind::Signalled, SIGKILL, 5.3);
  end(2, EndKind::Signalled, SIGKILL, 5.0);
  end(3, EndKind::Signalled, SIGTERM, 4.9);  // recorded before, but asked for by the launcher
  expect(Verdict::Died, 2, "killed by signal 9 (SIGKILL)");
  EXPECT_THAT(find_blame(ranks_).also, testing::ElementsAre(0, 3));
  EXPECT_THAT(blame_text(ranks_, find_blame(ranks_)),
              HasSubstr("at fault: rank 2 (node7, tp 0 pp 1 dp 0) was killed by signal 9 (SIGKILL)\n"
                        "  at step 3 op 5 F micro-batch 1; last step completed: 2\n"));
}

TEST_F(BlameTest, nobody_is_at_fault_when_somebody_ended_the_job) {
  end(2, EndKind::Signalled, SIGINT, 5.0);
  expect(Verdict::Died, 2, "SIGINT");  // one rank alone
  end(0, EndKind::Signalled, SIGINT, 5.0);
  end(1, EndKind::Signalled, SIGINT, 5.0);
  expect(Verdict::Interrupted, -1, "");
  end(3, EndKind::Signalled, SIGSEGV, 5.1);
  expect(Verdict::Died, 3, "SIGSEGV");
}

TEST_F(BlameTest, leaving_with_0_before_the_end_is_a_death) {
  end(1, EndKind::Exited, 0, 2);
  expect(Verdict::Died, 1, "left with exit code 0");
  rank(1).leaving = 0;
  rank(1).completed = true;
  const Blame none = find_blame(ranks_);
  EXPECT_EQ(none.rank, -1);
}

TEST_F(BlameTest, an_error_counts_before_those_it_was_told_to_and_those_that_waited) {
  fail(0, FailureKind::Told, "rank 3: disk full", 1);
  fail(1, FailureKind::PeerLost, "peer lost", 0.5);
  fail(3, FailureKind::Own, "disk full", 1.1);
  expect(Verdict::Failed, 3, "failed: disk full");
}

TEST_F(BlameTest, a_stopped_rank_counts_before_one_that_computes) {
  fail(0, FailureKind::PeerLost, "peer lost", 3);
  rank(2).stop_signal = SIGSTOP;
  rank(2).stopped_s = rank(2).start_s + 0.5;
  expect(Verdict::Halted, 2, "stopped by signal 19 (SIGSTOP)");
}

TEST_F(BlameTest, else_the_rank_that_waits_for_nobody) {
  fail(0, FailureKind::PeerLost, "peer lost", 3);
  for (const int r : {0, 1, 3}) waits(r, 1);
  expect(Verdict::Stuck, 2, "waits for nobody: it has been in step 3 op 5 F micro-batch 1");
  waits(2, 1);
  rank(3).rows.erase(rank(3).rows.begin(), rank(3).rows.begin() + 4);  // it has completed no op
  expect(Verdict::Deadlock, 3, "least far");
}

TEST_F(BlameTest, a_rank_without_a_record_is_named_when_others_waited) {
  fail(0, FailureKind::PeerLost, "peer lost", 3);
  ranks_.erase(ranks_.begin() + 1);
  expect(Verdict::Stuck, 1, "no record");
}

TEST_F(BlameTest, nobody_is_blamed_for_a_run_that_runs_or_is_complete) {
  expect(Verdict::Running, -1, "");
  for (FlightRank& r : ranks_) r.completed = true;
  expect(Verdict::Completed, -1, "");
}

TEST_F(BlameTest, killed_together_with_their_parents_the_one_that_did_not_wait_is_named_as_a_guess) {
  for (FlightRank& r : ranks_) r.gone = true;
  for (const int r : {0, 2, 3}) waits(r, 1);
  expect(Verdict::KilledAll, 1, "waited for nobody, when no rank's end was recorded");
}

TEST_F(BlameTest, whoever_was_asked_to_stop_before_it_was_killed_is_said) {
  for (FlightRank& r : ranks_) r.gone = true;
  rank(2).signal = SIGTERM;
  rank(3).signal = SIGTERM;
  rank(3).leaving = 75;  // has done so
  const std::string text = blame_text(ranks_, find_blame(ranks_));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 7);
  EXPECT_THAT(text, testing::ContainsRegex("\n +2 [^\n]* in step 3 op 5 F micro-batch 1, asked to stop by SIGTERM\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\n +3 [^\n]* in step 3 op 5 F micro-batch 1\n"));
}

TEST_F(BlameTest, the_report_is_made_once) {
  fail(3, FailureKind::Own, "disk full", 1.1);
  EXPECT_EQ(claim_failure_report(directory_.path()), "");  // the files themselves know of no failure
  FlightRecorder recorder;
  work(recorder, 3, 4);
  recorder.attach(directory_.path());
  recorder.set_failure(FailureKind::Own, "disk full");
  EXPECT_THAT(claim_failure_report(directory_.path()),
              HasSubstr("at fault: rank 3 (node7, tp 0 pp 1 dp 0) failed: disk full"));
  EXPECT_EQ(claim_failure_report(directory_.path()), "");
  EXPECT_TRUE(std::filesystem::exists(flight_directory(directory_.path()) + "/failure.json"));
}

}  // namespace
}  // namespace triax::io

// The checker accepts every program that the generators make, and finds each fault that is put into one.
#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/checker.h"
#include "parallel/csv_schedule.h"
#include "parallel/program_passes.h"
#include "tests/unit/parallel_programs.h"

namespace triax::parallel {
namespace {

using Texts = std::vector<std::string>;

// 1F1B, interleaved, or zero-bubble with everything in it: two buckets per position, tied embedding, partial sums.
Program rich_program(ScheduleKind kind) {
  const int v = kind == ScheduleKind::Interleaved || kind == ScheduleKind::ZeroBubbleV ? 2 : 1;
  ProgramOptions options = program_options(schedule_options(kind, 4, v, 8));
  options.tied_embedding = true;
  options.tensor_partial = true;
  options.bucket_chunks.assign(4, {v - 1, 0});
  return make_training_program(options);
}

size_t index_of(const Program& program, int position, OpKind kind, int micro_batch = 0, int chunk = 0) {
  const auto& ops = program.positions[static_cast<size_t>(position)];
  const auto found = std::find_if(ops.begin(), ops.end(), [&](const Op& op) {
    return op.kind == kind && op.micro_batch == micro_batch && op.chunk == chunk;
  });
  EXPECT_NE(found, ops.end());
  return static_cast<size_t>(found - ops.begin());
}
std::vector<Op>& ops_of(Program& program, int position) { return program.positions[static_cast<size_t>(position)]; }
void erase(Program& program, int position, size_t index) {
  ops_of(program, position).erase(ops_of(program, position).begin() + static_cast<std::ptrdiff_t>(index));
}
void repeat(Program& program, int position, size_t index) {
  const Op op = ops_of(program, position)[index];
  ops_of(program, position).insert(ops_of(program, position).begin() + static_cast<std::ptrdiff_t>(index) + 1, op);
}

// One of the faults contains all the words.
void expect_fault(const Program& program, const Texts& words) {
  const Texts faults = check(program);
  const bool found = std::any_of(faults.begin(), faults.end(), [&](const std::string& fault) {
    return std::all_of(words.begin(), words.end(),
                       [&](const std::string& word) { return fault.find(word) != std::string::npos; });
  });
  std::string all;
  for (const std::string& fault : faults) all += "\n  " + fault;
  EXPECT_TRUE(found) << "expected " << words[0] << ", found" << (faults.empty() ? " nothing" : all);
}

TEST(Check, AcceptsEveryGeneratedProgram) {
  for (int p = 2; p <= 6; ++p) {
    for (int m = 1; m <= 3 * p; ++m) {
      for (const ScheduleOptions& schedule : every_schedule(p, m)) {
        if (!check_schedule(schedule).empty()) continue;
        ProgramOptions options = program_options(schedule);
        EXPECT_EQ(check(make_training_program(options)), Texts()) << name_of(schedule.kind) << " p" << p << " m" << m;
        EXPECT_EQ(check(make_evaluation_program(options)), Texts());
        options.recompute = RecomputeOps::Separate;
        options.tied_embedding = true;
        options.bucket_chunks.assign(static_cast<size_t>(p), {schedule.chunks - 1, 0});
        EXPECT_EQ(check(make_training_program(options)), Texts());
      }
    }
  }
  EXPECT_EQ(check(program_of(schedule_options(ScheduleKind::OneFOneB, 1, 1, 4))), Texts());
}

TEST(Check, FindsADeadlock) {
  // Position 1 wants the first gradient before it has made the activation that the gradient comes from.
  Program program = rich_program(ScheduleKind::OneFOneB);
  auto& ops = ops_of(program, 1);
  const size_t receive = index_of(program, 1, OpKind::RecvGradient, 0);
  const size_t send = index_of(program, 1, OpKind::SendActivation, 0);
  std::rotate(ops.begin() + static_cast<std::ptrdiff_t>(send), ops.begin() + static_cast<std::ptrdiff_t>(receive),
              ops.begin() + static_cast<std::ptrdiff_t>(receive) + 1);
  expect_fault(program, {"deadlock: ", "position 1, op ", "1RECV_B0", "waits for position 2", "2RECV_F0"});
}

TEST(Check, FindsTheDeadlockOfARaggedGroup) {
  // p4 v3 G4 m5: the last group of one micro-batch cannot hide the way round the ring. check_schedule refuses it; the
  // same order read from a file is found by the checker.
  const auto raw_order = [](int position) {
    std::vector<Op> forwards, backwards, ops;
    for (const auto& [start, stop] : {std::pair{0, 4}, std::pair{4, 5}}) {
      for (int chunk = 0; chunk < 3; ++chunk) {
        for (int i = start; i < stop; ++i) {
          forwards.push_back({OpKind::Forward, chunk, i});
          backwards.push_back({OpKind::Backward, 2 - chunk, i});
        }
      }
    }
    const size_t warmup = static_cast<size_t>(2 * (3 - position) + 2 * 4);
    ops.assign(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(warmup));
    for (size_t i = 0; i < backwards.size(); ++i) {
      if (warmup + i < forwards.size()) ops.push_back(forwards[warmup + i]);
      ops.push_back(backwards[i]);
    }
    return ops;
  };
  ScheduleOptions schedule{ScheduleKind::Csv, 4, 3, 5, 0};
  for (int i = 0; i < 4; ++i) {
    schedule.listed.push_back(raw_order(i));
    for (int chunk = 0; chunk < 3; ++chunk) schedule.listed_stages.push_back(4 * chunk + i);
  }
  expect_fault(program_of(schedule), {"deadlock: position "});
}

TEST(Check, FindsUnmatchedAndCrossedMessages) {
  Program unsent = rich_program(ScheduleKind::Interleaved);
  erase(unsent, 1, index_of(unsent, 1, OpKind::SendActivation, 3, 1));
  expect_fault(unsent, {"position 2, op ", "6RECV_F3", "unmatched receive: position 1 has no send"});

  Program unreceived = rich_program(ScheduleKind::Interleaved);
  erase(unreceived, 2, index_of(unreceived, 2, OpKind::RecvGradient, 5, 0));
  expect_fault(unreceived, {"position 3, op ", "3SEND_B5", "unmatched send: position 2 has no receive"});

  Program crossed = rich_program(ScheduleKind::OneFOneB);
  std::swap(ops_of(crossed, 1)[index_of(crossed, 1, OpKind::SendActivation, 2)].match,
            ops_of(crossed, 1)[index_of(crossed, 1, OpKind::SendActivation, 3)].match);
  expect_fault(crossed, {"position 1, op ", "1SEND_F2", "position 2, op ", "2RECV_F3", "crossed message",
                         "the micro-batches differ"});

  Program kinds = rich_program(ScheduleKind::OneFOneB);
  Op& gradient = ops_of(kinds, 2)[index_of(kinds, 2, OpKind::SendGradient, 0)];
  ops_of(kinds, 1)[index_of(kinds, 1, OpKind::RecvGradient, 0)].match = 1'000'000;
  Op& activation = ops_of(kinds, 2)[index_of(kinds, 2, OpKind::SendActivation, 0)];
  std::swap(gradient.match, activation.match);
  expect_fault(kinds, {"2SEND_B0", "3RECV_F0", "one is an activation, the other a gradient"});

  Program misdirected = rich_program(ScheduleKind::OneFOneB);
  ops_of(misdirected, 0)[index_of(misdirected, 0, OpKind::SendActivation, 1)].peer_offset = 2;
  expect_fault(misdirected, {"position 0, op ", "0SEND_F1", "the send goes to position 2"});

  Program twice = rich_program(ScheduleKind::OneFOneB);
  repeat(twice, 0, index_of(twice, 0, OpKind::SendActivation, 1));
  expect_fault(twice, {"position 0, op ", "0SEND_F1", "was used by position 0"});
}

TEST(Check, FindsUseAfterFreeAndDoubleFree) {
  // The weight gradient frees the activations; the input gradient comes after it.
  Program after = rich_program(ScheduleKind::ZeroBubbleH1);
  auto& ops = ops_of(after, 0);
  const size_t input = index_of(after, 0, OpKind::BackwardInput, 2);
  const size_t weight = index_of(after, 0, OpKind::BackwardWeight, 2);
  std::swap(ops[input], ops[weight]);
  expect_fault(after, {"position 0, op ", "0I2", "use after free, freed by position 0, op ", "0W2", "activations"});
  expect_fault(after, {"position 0, op ", "0W2", "consumes what was never made (I is missing or comes later)"});

  Program twice = rich_program(ScheduleKind::ZeroBubbleH1);
  repeat(twice, 3, index_of(twice, 3, OpKind::BackwardWeight, 4));
  expect_fault(twice, {"position 3, op ", "3W4", "double free", "activations"});
  expect_fault(twice, {"position 3, op ", "3W4", "happens twice"});

  Program early = rich_program(ScheduleKind::OneFOneB);
  auto& sends = ops_of(early, 2);
  std::swap(sends[index_of(early, 2, OpKind::Forward, 1)], sends[index_of(early, 2, OpKind::SendActivation, 1)]);
  expect_fault(early, {"position 2, op ", "2SEND_F1", "never made (F is missing or comes later)"});

  Program leak = rich_program(ScheduleKind::ZeroBubbleV);
  erase(leak, 1, index_of(leak, 1, OpKind::BackwardWeight, 7, 1));
  expect_fault(leak, {"position 1, op ", "6F7", "makes what nothing frees: activations"});
  expect_fault(leak, {"position 1: 6W7 is missing"});
}

TEST(Check, FindsWrongCollectiveOrder) {
  Program swapped = rich_program(ScheduleKind::OneFOneB);
  auto& ops = ops_of(swapped, 3);
  const size_t tied = index_of(swapped, 3, OpKind::SumTied);
  erase(swapped, 3, tied);
  expect_fault(swapped, {"wrong collective order on the embedding group", "position 0, op ", "0SUM_TIED",
                         "position 3: nothing"});

  // The same communicator, other order: one position takes the norm before its tied sum is through.
  Program crossed = rich_program(ScheduleKind::OneFOneB);
  auto& other = ops_of(crossed, 3);
  std::swap(other[index_of(crossed, 3, OpKind::SumTied)], other[index_of(crossed, 3, OpKind::GradientNorm)]);
  expect_fault(crossed, {"deadlock: ", "position 0, op ", "SUM_TIED) waits for position 3", "position 3, op ",
                         "NORM) waits for position 0"});
  expect_fault(crossed, {"position 3, op ", "SUM_TIED", "comes after the gradient norm"});

  Program stranger = rich_program(ScheduleKind::OneFOneB);
  Op sum;
  sum.kind = OpKind::SumTied;
  ops_of(stranger, 1).insert(ops_of(stranger, 1).end() - 2, sum);
  expect_fault(stranger, {"position 1, op ", "no member of the embedding group"});
  EXPECT_FALSE(ops.empty());
}

TEST(Check, FindsOpsMissingOrTwice) {
  Program missing = rich_program(ScheduleKind::Interleaved);
  erase(missing, 2, index_of(missing, 2, OpKind::Forward, 4, 1));
  expect_fault(missing, {"position 2: 6F4 is missing"});

  Program twice = rich_program(ScheduleKind::OneFOneB);
  repeat(twice, 2, index_of(twice, 2, OpKind::Backward, 4));
  expect_fault(twice, {"position 2, op ", "2B4", "happens twice"});

  Program both = rich_program(ScheduleKind::OneFOneB);
  Op input = ops_of(both, 0)[index_of(both, 0, OpKind::Backward, 6)];
  input.kind = OpKind::BackwardInput;
  ops_of(both, 0).insert(ops_of(both, 0).begin() + 40, input);
  expect_fault(both, {"position 0: 0B6 happens twice: whole, and as 0I6"});

  Program bucket = rich_program(ScheduleKind::OneFOneB);
  const auto first_bucket = [&](Program& program) {
    const auto& list = program.positions[1];
    return static_cast<size_t>(
        std::find_if(list.begin(), list.end(), [](const Op& op) { return op.kind == OpKind::ReduceGradients; }) -
        list.begin());
  };
  erase(bucket, 1, first_bucket(bucket));
  expect_fault(bucket, {"position 1: bucket 0 is never reduced"});
  Program reduced_twice = rich_program(ScheduleKind::OneFOneB);
  repeat(reduced_twice, 1, first_bucket(reduced_twice));
  expect_fault(reduced_twice, {"position 1, op ", "1REDUCE_GRAD.0", "is reduced twice"});

  Program early = rich_program(ScheduleKind::OneFOneB);
  const size_t sum = first_bucket(early);
  std::rotate(ops_of(early, 1).begin() + 10, ops_of(early, 1).begin() + static_cast<std::ptrdiff_t>(sum),
              ops_of(early, 1).begin() + static_cast<std::ptrdiff_t>(sum) + 1);
  expect_fault(early, {"position 1, op ", "adds to gradients that op 10 has already summed"});

  Program no_step = rich_program(ScheduleKind::OneFOneB);
  ops_of(no_step, 2).pop_back();
  expect_fault(no_step, {"position 2: OPT is missing"});

  Program no_load = rich_program(ScheduleKind::OneFOneB);
  erase(no_load, 0, index_of(no_load, 0, OpKind::LoadBatch, 3));
  expect_fault(no_load, {"position 0, op ", "0F3", "LOAD is missing"});
}

TEST(Check, FindsAWrongShape) {
  Program chunk = rich_program(ScheduleKind::OneFOneB);
  ops_of(chunk, 1)[3].chunk = 1;
  expect_fault(chunk, {"position 1, op 3", "out of range (1 chunks, 8 micro-batches, 4 positions)"});
  Program lists = rich_program(ScheduleKind::OneFOneB);
  lists.positions.pop_back();
  expect_fault(lists, {"3 lists of ops for 4 positions"});
  Program placement = rich_program(ScheduleKind::ZeroBubbleV);
  placement.layers.placement = Placement::Listed;
  placement.layers.listed_stages = {0, 7, 1, 6, 2, 5, 3, 3};
  expect_fault(placement, {"position 3: chunk 1 is virtual stage 3, which is out of range or held twice"});
}

TEST(Check, ListsAtMostTwentyFaults) {
  Program program = rich_program(ScheduleKind::OneFOneB);
  for (auto& ops : program.positions) std::erase_if(ops, [](const Op& op) { return op.kind == OpKind::Backward; });
  const Texts faults = check(program);
  ASSERT_EQ(faults.size(), 21u);
  EXPECT_NE(faults.back().find(" more"), std::string::npos);
}

}  // namespace
}  // namespace triax::parallel

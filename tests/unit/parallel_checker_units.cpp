// The checker of what happens inside ops: it accepts every expansion, and finds each fault that is put into one.
#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/checker.h"
#include "parallel/program_passes.h"
#include "tests/unit/parallel_programs.h"

namespace triax::parallel {
namespace {

using Lists = std::vector<std::vector<UnitOp>>;
using Texts = std::vector<std::string>;

// Every chunk: units 2c (norms complete in the input pass: a block of its own) and 2c + 1. Blocks 2c and 2c + 1 hold
// their gathered weights, the last block a resident one that both units of chunk 0 add to.
PositionUnits two_units(int chunks) {
  PositionUnits units;
  for (int c = 0; c < chunks; ++c) {
    const int a = 2 * c, b = 2 * c + 1;
    units.blocks.push_back({true, GradientPhase::Input, {a}});
    units.blocks.push_back({true, GradientPhase::Weight, {b}});
    ChunkWalk walk;
    walk.forward = {{a, UnitPass::Forward, true}, {b, UnitPass::Forward, true}};
    walk.backward = {{b, UnitPass::Backward, true}, {a, UnitPass::Backward, true}};
    walk.backward_input = {{b, UnitPass::BackwardInput, true}, {a, UnitPass::BackwardInput, true}};
    walk.backward_weight = {{b, UnitPass::BackwardWeight, false}, {a, UnitPass::BackwardWeight, false}};
    units.walks.push_back(walk);
  }
  units.blocks.push_back({false, GradientPhase::Weight, {0, 1}});
  return units;
}

Program program_with(const ScheduleOptions& schedule, const UnitOptions& options) {
  ProgramOptions o = program_options(schedule);
  o.unit_options = options;
  o.units.assign(static_cast<size_t>(schedule.pipeline), two_units(schedule.chunks));
  return make_training_program(o);
}

Program one_f_one_b() { return program_with(schedule_options(ScheduleKind::OneFOneB, 2, 1, 3), {}); }

struct Where {
  size_t op = 0, inside = 0;
};
// The n-th unit op of the kind and block (Run: of any unit) on the position.
Where find(const Lists& lists, UnitOpKind kind, int block, int n = 0) {
  for (size_t i = 0; i < lists.size(); ++i) {
    for (size_t k = 0; k < lists[i].size(); ++k) {
      if (lists[i][k].kind == kind && lists[i][k].block == block && n-- == 0) return {i, k};
    }
  }
  ADD_FAILURE() << "no " << name_of(kind) << " of block " << block;
  return {};
}
void erase(Lists& lists, Where at) {
  lists[at.op].erase(lists[at.op].begin() + static_cast<std::ptrdiff_t>(at.inside));
}
void repeat(Lists& lists, Where at) {
  const UnitOp op = lists[at.op][at.inside];
  lists[at.op].insert(lists[at.op].begin() + static_cast<std::ptrdiff_t>(at.inside), op);
}

void expect_fault(const Program& program, const Lists& lists, const Texts& words) {
  const Texts faults = check_units(program, 0, lists);
  const bool found = std::any_of(faults.begin(), faults.end(), [&](const std::string& fault) {
    return std::all_of(words.begin(), words.end(),
                       [&](const std::string& word) { return fault.find(word) != std::string::npos; });
  });
  std::string all;
  for (const std::string& fault : faults) all += "\n  " + fault;
  EXPECT_TRUE(found) << "expected " << words[0] << ", found" << (faults.empty() ? " nothing" : all);
}

TEST(CheckUnits, AcceptsEveryExpansion) {
  int checked = 0;
  for (const int p : {2, 4}) {
    for (const int m : {p, 2 * p, 3 * p + 1}) {
      for (const ScheduleOptions& schedule : every_schedule(p, m)) {
        if (!check_schedule(schedule).empty()) continue;
        for (const int prefetch : {0, 1, 5}) {
          for (const KeepGathered keep : {KeepGathered::Forward, KeepGathered::Backward, KeepGathered::Step}) {
            for (const int in_flight : {0, 1, 3}) {
              const Program program = program_with(schedule, {prefetch, keep, in_flight, true});
              EXPECT_EQ(check(program), Texts()) << name_of(schedule.kind) << " p" << p << " m" << m << " prefetch "
                                                 << prefetch << " keep " << name_of(keep) << " in flight " << in_flight;
              ++checked;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(checked, 500);
}

TEST(CheckUnits, RecomputationOfItsOwnRunsNoUnits) {
  ProgramOptions o = program_options(schedule_options(ScheduleKind::OneFOneB, 2, 1, 3));
  o.units.assign(2, two_units(1));
  o.recompute = RecomputeOps::Separate;
  const Program program = make_training_program(o);
  EXPECT_EQ(check(program), Texts());
  const Lists lists = unit_ops(program, 0);
  size_t recomputed = 0;
  for (size_t i = 0; i < lists.size(); ++i) {
    if (program.positions[0][i].kind != OpKind::Recompute) continue;
    ++recomputed;
    EXPECT_TRUE(lists[i].empty());
  }
  EXPECT_EQ(recomputed, 3u);
}

// All-gathers run in the order of the calls: one that is needed later must not hold up one that is needed now.
TEST(UnitOps, WhatIsNeededFirstIsGatheredFirst) {
  Program program =
      program_with(schedule_options(ScheduleKind::OneFOneB, 2, 1, 3), {5, KeepGathered::Forward, 1, true});
  for (PositionUnits& units : program.units) {  // blocks of last units first, as a ShardPlan has them
    std::swap(units.blocks[0].units, units.blocks[1].units);
    std::swap(units.blocks[0].phase, units.blocks[1].phase);
  }
  EXPECT_EQ(check(program), Texts());
  const Lists lists = unit_ops(program, 0);
  const size_t first = find(lists, UnitOpKind::Gather, 1).op;
  EXPECT_EQ(text_of(lists[first][0]), "GATHER block 1");
  EXPECT_EQ(text_of(lists[first][1]), "GATHER block 0");
}

TEST(CheckUnits, FindsFaultsOfWeights) {
  const Program program = one_f_one_b();
  const Lists good = unit_ops(program, 0);
  EXPECT_EQ(check_units(program, 0, good), Texts());

  Lists unreleased = good;
  erase(unreleased, find(unreleased, UnitOpKind::Release, 1));
  expect_fault(program, unreleased, {"(GATHER block 1): gathered twice, first by position 0, op "});
  Lists at_end = good;
  int last = 0;
  for (const auto& list : good)
    last += static_cast<int>(std::count(list.begin(), list.end(), UnitOp{UnitOpKind::Release, 0, {}}));
  erase(at_end, find(at_end, UnitOpKind::Release, 0, last - 1));
  expect_fault(program, at_end, {"position 0, op ", "(GATHER block 0): gathered and never released"});

  Lists never = good;
  erase(never, find(never, UnitOpKind::Gather, 0));
  expect_fault(program, never, {"0F0), inside ", "(F unit 0): reads weights of block 0, which were never gathered"});
  expect_fault(program, never, {"(RELEASE block 0): releases what was never gathered"});

  Lists early = good;
  const Where gather = find(early, UnitOpKind::Gather, 1);
  early[gather.op].insert(early[gather.op].begin() + static_cast<std::ptrdiff_t>(gather.inside) + 1,
                          {UnitOpKind::Release, 1, {}});
  expect_fault(program, early, {"(F unit 1): reads weights of block 1, released by position 0, op "});

  Lists twice = good;
  repeat(twice, find(twice, UnitOpKind::Release, 0));
  expect_fault(program, twice, {"(RELEASE block 0): double release, already by position 0, op "});
  Lists again = good;
  repeat(again, find(again, UnitOpKind::Gather, 0));
  expect_fault(program, again, {"(GATHER block 0): gathered twice, first by position 0, op "});
  Lists resident = good;
  resident[0].push_back({UnitOpKind::Gather, 2, {}});
  expect_fault(program, resident, {"(GATHER block 2): the block is resident"});
}

TEST(CheckUnits, FindsFaultsOfGradients) {
  const Program program = one_f_one_b();
  const Lists good = unit_ops(program, 0);

  Lists uncollected = good;
  erase(uncollected, find(uncollected, UnitOpKind::Collect, 1));
  expect_fault(program, uncollected,
               {"0B0), inside ", "(B unit 1): adds to gradients of block 1, which has no bucket"});
  expect_fault(program, uncollected, {"(REDUCE block 1): reduces what was never collected"});

  Lists twice = good;
  repeat(twice, find(twice, UnitOpKind::Collect, 0));
  expect_fault(program, twice, {"(COLLECT block 0): collected twice, without a reduction of position 0, op "});

  Lists unreduced = good;
  erase(unreduced, find(unreduced, UnitOpKind::Reduce, 0, 2));
  erase(unreduced, find(unreduced, UnitOpKind::Finish, 0, 2));
  expect_fault(program, unreduced,
               {"(COLLECT block 0): the bucket is never reduced, and is not finished before position 0, op ", "NORM"});
  Lists reduced_twice = good;
  repeat(reduced_twice, find(reduced_twice, UnitOpKind::Reduce, 0));
  expect_fault(program, reduced_twice, {"(REDUCE block 0): reduced twice, first by position 0, op "});

  Lists unfinished = good;
  erase(unfinished, find(unfinished, UnitOpKind::Finish, 0));
  expect_fault(program, unfinished, {"(COLLECT block 0): collects into a bucket whose reduction is not finished"});
  Lists open = good;
  erase(open, find(open, UnitOpKind::Finish, 0, 2));
  expect_fault(program, open, {"(REDUCE block 0): the reduction is not finished before position 0, op ", "NORM"});
  Lists finished_twice = good;
  repeat(finished_twice, find(finished_twice, UnitOpKind::Finish, 0));
  expect_fault(program, finished_twice, {"(FINISH block 0): finishes a reduction that was never started"});

  Lists empty = good;
  const Where reduce = find(empty, UnitOpKind::Reduce, 1);
  const Where collect = find(empty, UnitOpKind::Collect, 1);
  ASSERT_EQ(reduce.op, collect.op);
  erase(empty, reduce);
  empty[collect.op].insert(empty[collect.op].begin() + static_cast<std::ptrdiff_t>(collect.inside) + 1,
                           {UnitOpKind::Reduce, 1, {}});
  expect_fault(program, empty, {"(REDUCE block 1): reduces a bucket to which no unit has added since"});
  expect_fault(program, empty, {"(B unit 1): adds to gradients of block 1 that position 0, op ", "is reducing"});
}

// Stages 0 and 1: gradients have memory of their own, and each block is reduced once, when it is complete.
TEST(CheckUnits, FindsReductionsOfGradientsThatStillGrow) {
  UnitOptions options;
  options.shards_gradients = false;
  const Program program = program_with(schedule_options(ScheduleKind::OneFOneB, 2, 1, 3), options);
  const Lists good = unit_ops(program, 0);
  EXPECT_EQ(check_units(program, 0, good), Texts());
  const Where reduce = find(good, UnitOpKind::Reduce, 2);
  EXPECT_EQ(good[reduce.op].back().block, good[reduce.op][reduce.inside].block) << "complete with the last unit";
  Lists lists = good;
  repeat(lists, reduce);
  expect_fault(program, lists, {"reduced twice"});
  lists = good;
  const UnitOp early = lists[reduce.op][reduce.inside];
  erase(lists, reduce);
  lists[reduce.op].insert(lists[reduce.op].begin(), early);
  expect_fault(program, lists, {"adds to gradients of block 2", "has reduced"});
}

TEST(CheckUnits, FindsOtherUnitsThanTheModelRuns) {
  const Program program = one_f_one_b();
  const Lists good = unit_ops(program, 0);
  Lists missing = good;
  erase(missing, find(missing, UnitOpKind::Run, -1, 1));
  expect_fault(program, missing, {"0F0): does not run F unit 1"});
  Lists more = good;
  repeat(more, find(more, UnitOpKind::Run, -1, 1));
  expect_fault(program, more, {"0F0), inside ", "(F unit 1): the model runs no more units here"});
  Lists other = good;
  const Where run = find(other, UnitOpKind::Run, -1, 0);
  other[run.op][run.inside].use.unit = 1;
  expect_fault(program, other, {"(F unit 1): the model runs F unit 0 here"});
  Lists outside = good;
  outside[0].push_back({UnitOpKind::Gather, 7, {}});
  expect_fault(program, outside, {"(GATHER block 7): names none of the 3 blocks"});
  Lists shorter = good;
  shorter.pop_back();
  expect_fault(program, shorter, {"position 0: ", "lists of unit ops for "});
}

TEST(CheckUnits, RefusesTablesThatDoNotFit) {
  Program positions = one_f_one_b();
  positions.units.pop_back();
  EXPECT_EQ(check(positions), Texts({"the program has units of 1 positions, not 2"}));
  Program walks = one_f_one_b();
  walks.units[1].walks.clear();
  EXPECT_EQ(check(walks), Texts({"position 1: walks of 0 chunks, not 1"}));
}

}  // namespace
}  // namespace triax::parallel

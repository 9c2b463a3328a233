// Schedules as pure data: order, messages, makespan and activations in flight against the closed forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "parallel/schedule.h"

namespace triax::parallel {
namespace {

ScheduleOptions options_of(ScheduleKind kind, int p, int v, int m, int group = 0) { return {kind, p, v, m, group}; }

LayerMap uniform_layers(int p, int v) { return make_layer_map(int64_t{p} * v, p, v, 0, 0, {}); }

// Runs the positions' ops in order over time: forwards take 1/v, backwards 2/v, messages are free and a receive waits
// for its send. Returns the makespan, or -1 when nobody can go on (deadlock). Also the peak of forwards in flight.
struct Timing {
  double makespan = 0;
  std::vector<int> peak_in_flight;
};
Timing simulate(const Program& program) {
  std::map<int64_t, double> sent;
  std::vector<size_t> next(program.positions.size(), 0);
  std::vector<double> clock(program.positions.size(), 0);
  std::vector<int> live(program.positions.size(), 0);
  Timing run{0, std::vector<int>(program.positions.size(), 0)};
  bool moved = true;
  while (moved) {
    moved = false;
    for (size_t i = 0; i < program.positions.size(); ++i) {
      while (next[i] < program.positions[i].size()) {
        const Op& op = program.positions[i][next[i]];
        if (op.kind == OpKind::RecvActivation || op.kind == OpKind::RecvGradient) {
          if (!sent.contains(op.match)) break;
          clock[i] = std::max(clock[i], sent[op.match]);
        }
        if (op.kind == OpKind::Forward) {
          clock[i] += 1.0 / program.chunks;
          run.peak_in_flight[i] = std::max(run.peak_in_flight[i], ++live[i]);
        }
        if (op.kind == OpKind::Backward) {
          clock[i] += 2.0 / program.chunks;
          --live[i];
        }
        if (op.kind == OpKind::SendActivation || op.kind == OpKind::SendGradient) sent[op.match] = clock[i];
        ++next[i];
        moved = true;
      }
    }
  }
  for (size_t i = 0; i < next.size(); ++i) {
    if (next[i] < program.positions[i].size()) return {-1, {}};
  }
  run.makespan = *std::max_element(clock.begin(), clock.end());
  return run;
}

Program program_of(const ScheduleOptions& options) {
  ProgramOptions p;
  p.schedule = options;
  p.layers = uniform_layers(options.pipeline, options.chunks);
  return make_training_program(p);
}

TEST(Schedule, OneFOneBAndGPipeMatchClosedForms) {
  for (const ScheduleKind kind : {ScheduleKind::OneFOneB, ScheduleKind::GPipe}) {
    for (int p = 1; p <= 16; ++p) {
      for (int m = 1; m <= 64; ++m) {
        const Timing run = simulate(program_of(options_of(kind, p, 1, m)));
        ASSERT_DOUBLE_EQ(run.makespan, 3.0 * (m + p - 1)) << name_of(kind) << " p" << p << " m" << m;
        for (int i = 0; i < p; ++i) {
          const int expected = kind == ScheduleKind::GPipe ? m : std::min(m, p - i);
          ASSERT_EQ(run.peak_in_flight[static_cast<size_t>(i)], expected) << name_of(kind) << " p" << p << " m" << m;
        }
      }
    }
  }
}

TEST(Schedule, InterleavedMatchesClosedForms) {
  for (int p = 2; p <= 8; ++p) {
    for (int v = 2; v <= 4; ++v) {
      for (int m = p; m <= 4 * p; m += p) {
        const Timing run = simulate(program_of(options_of(ScheduleKind::Interleaved, p, v, m)));
        ASSERT_NEAR(run.makespan, 3.0 * m + 3.0 * (p - 1) / v, 1e-9) << "p" << p << " v" << v << " m" << m;
        for (int i = 0; i < p; ++i) {
          ASSERT_EQ(run.peak_in_flight[static_cast<size_t>(i)], std::min(2 * (p - i - 1) + (v - 1) * p + 1, m * v));
        }
      }
    }
  }
}

TEST(Schedule, GoldenMakespans) {
  EXPECT_DOUBLE_EQ(simulate(program_of(options_of(ScheduleKind::OneFOneB, 4, 1, 8))).makespan, 33.0);
  EXPECT_DOUBLE_EQ(simulate(program_of(options_of(ScheduleKind::Interleaved, 4, 2, 8))).makespan, 28.5);
  EXPECT_DOUBLE_EQ(simulate(program_of(options_of(ScheduleKind::Interleaved, 4, 4, 8))).makespan, 26.25);
  const Timing run = simulate(program_of(options_of(ScheduleKind::Interleaved, 8, 3, 64)));
  EXPECT_NEAR(run.makespan, 199.0, 1e-9);
  EXPECT_EQ(run.peak_in_flight, (std::vector<int>{31, 29, 27, 25, 23, 21, 19, 17}));
}

TEST(Schedule, MicroBatchOrderOfGroups) {
  const auto forwards = [](int p, int v, int m, int group) {
    std::vector<int> order;
    for (const Op& op : compute_order(options_of(ScheduleKind::Interleaved, p, v, m, group), 0)) {
      if (op.kind == OpKind::Forward) order.push_back(op.micro_batch);
    }
    return order;
  };
  EXPECT_EQ(forwards(2, 2, 4, 2), (std::vector<int>{0, 1, 0, 1, 2, 3, 2, 3}));
  EXPECT_EQ(forwards(2, 2, 5, 3), (std::vector<int>{0, 1, 2, 0, 1, 2, 3, 4, 3, 4}));
}

TEST(Schedule, WarmupCountsAreMegatrons) {
  for (int i = 0; i < 4; ++i) {
    const std::vector<Op> ops = compute_order(options_of(ScheduleKind::OneFOneB, 4, 1, 8), i);
    const auto first_backward =
        std::find_if(ops.begin(), ops.end(), [](const Op& o) { return o.kind == OpKind::Backward; });
    EXPECT_EQ(first_backward - ops.begin(), std::min(4 - i - 1, 8) + 1);
  }
}

TEST(Program, EveryMessageHasOnePartnerOnTheNamedNeighbour) {
  for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::Interleaved}) {
    for (int p = 2; p <= 6; ++p) {
      const int v = kind == ScheduleKind::Interleaved ? 3 : 1;
      const Program program = program_of(options_of(kind, p, v, 2 * p));
      std::map<int64_t, std::pair<int, Op>> sends;
      size_t receives = 0;
      for (int i = 0; i < p; ++i) {
        for (const Op& op : program.positions[static_cast<size_t>(i)]) {
          if (op.kind != OpKind::SendActivation && op.kind != OpKind::SendGradient) continue;
          ASSERT_TRUE(sends.emplace(op.match, std::pair{i, op}).second) << "match id used twice";
        }
      }
      for (int i = 0; i < p; ++i) {
        for (const Op& op : program.positions[static_cast<size_t>(i)]) {
          if (op.kind != OpKind::RecvActivation && op.kind != OpKind::RecvGradient) continue;
          ++receives;
          ASSERT_TRUE(sends.contains(op.match));
          const auto& [sender, send] = sends[op.match];
          EXPECT_EQ((sender + send.peer_offset) % p, i);
          EXPECT_EQ((i + op.peer_offset) % p, sender);
          EXPECT_EQ(send.micro_batch, op.micro_batch);
          EXPECT_EQ(send.kind == OpKind::SendActivation, op.kind == OpKind::RecvActivation);
        }
      }
      EXPECT_EQ(receives, sends.size());
      EXPECT_EQ(sends.size(), static_cast<size_t>(2 * (p * v - 1) * 2 * p));
    }
  }
}

TEST(Program, SumsFollowTheLastWeightGradientAndTiedComesLast) {
  ProgramOptions o;
  o.schedule = options_of(ScheduleKind::Interleaved, 2, 2, 4);
  o.layers = uniform_layers(2, 2);
  o.tied_embedding = true;
  o.tensor_partial = true;
  o.bucket_chunks = {{1, 0, 0}, {1, 0}};
  const Program program = make_training_program(o);
  for (const auto& ops : program.positions) {
    std::map<int, size_t> last_backward;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind == OpKind::Backward) last_backward[ops[i].chunk] = i;
    }
    std::set<int> buckets;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind == OpKind::ReduceGradients) {
        EXPECT_GT(i, last_backward[ops[i].chunk]);
        EXPECT_TRUE(buckets.insert(ops[i].bucket).second);
      }
      if (ops[i].kind == OpKind::SumTied) {
        EXPECT_GT(i, last_backward[0]);
        EXPECT_GT(i, last_backward[1]);
      }
    }
    EXPECT_EQ(ops[ops.size() - 2].kind, OpKind::GradientNorm);
    EXPECT_EQ(ops.back().kind, OpKind::OptimizerStep);
  }
  EXPECT_EQ(std::count_if(program.positions[0].begin(), program.positions[0].end(),
                          [](const Op& op) { return op.kind == OpKind::ReduceGradients; }),
            3);
}

TEST(Program, HashSeesEveryChange) {
  Program a = program_of(options_of(ScheduleKind::OneFOneB, 4, 1, 8));
  const uint64_t hash = hash_of(a);
  EXPECT_EQ(hash, hash_of(program_of(options_of(ScheduleKind::OneFOneB, 4, 1, 8))));
  EXPECT_NE(hash, hash_of(program_of(options_of(ScheduleKind::GPipe, 4, 1, 8))));
  std::swap(a.positions[0][0], a.positions[0][1]);
  EXPECT_NE(hash, hash_of(a));
}

TEST(Schedule, RefusesWhatCanDeadlock) {
  // p4 v3 G4 m5 leaves a last group of one micro-batch.
  const std::string fault = check_schedule(options_of(ScheduleKind::Interleaved, 4, 3, 5, 4));
  EXPECT_NE(fault.find("nearest legal numbers of micro-batches are 4 and 8"), std::string::npos) << fault;
  EXPECT_THROW(compute_order(options_of(ScheduleKind::Interleaved, 4, 3, 5, 4), 0), ConfigError);
  EXPECT_NE(check_schedule(options_of(ScheduleKind::OneFOneB, 4, 2, 8)), "");
  EXPECT_NE(check_schedule(options_of(ScheduleKind::Interleaved, 4, 1, 8)), "");
  EXPECT_NE(check_schedule(options_of(ScheduleKind::Interleaved, 4, 2, 8, 2)), "");
  EXPECT_EQ(check_schedule(options_of(ScheduleKind::Interleaved, 4, 3, 9, 5)), "");  // ragged group of 4 = p
}

TEST(Schedule, WhatIsAcceptedNeverDeadlocks) {
  for (int p = 2; p <= 6; ++p) {
    for (int v = 2; v <= 4; ++v) {
      for (int group = p; group <= p + 3; ++group) {
        for (int m = 1; m <= 3 * p; ++m) {
          const ScheduleOptions o = options_of(ScheduleKind::Interleaved, p, v, m, group);
          if (!check_schedule(o).empty()) continue;
          ASSERT_GE(simulate(program_of(o)).makespan, 0) << "p" << p << " v" << v << " G" << group << " m" << m;
        }
      }
    }
  }
}

TEST(LayerMap, SplitsUnevenlyAndRefusesWithALegalValue) {
  const auto counts = [](const LayerMap& map) {
    std::vector<int64_t> out;
    for (const LayerRange& r : map.stage_layers) out.push_back(r.size());
    return out;
  };
  EXPECT_EQ(counts(make_layer_map(30, 4, 1, 0, 0, {})), (std::vector<int64_t>{8, 8, 7, 7}));
  EXPECT_EQ(counts(make_layer_map(30, 4, 1, 3, 5, {})), (std::vector<int64_t>{3, 11, 11, 5}));
  EXPECT_EQ(counts(make_layer_map(16, 4, 2, 2, 2, {})), (std::vector<int64_t>{1, 3, 3, 1, 1, 3, 3, 1}));
  EXPECT_EQ(counts(make_layer_map(6, 3, 1, 0, 0, {1, 2, 3})), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_THROW(make_layer_map(3, 4, 1, 0, 0, {}), ConfigError);
  EXPECT_THROW(make_layer_map(6, 3, 1, 0, 0, {1, 2, 4}), ConfigError);
  EXPECT_THROW(make_layer_map(4, 2, 1, 2, 3, {}), ConfigError);
  EXPECT_THROW(make_layer_map(4, 1, 1, 2, 0, {}), ConfigError);
  const LayerMap map = make_layer_map(8, 2, 2, 0, 0, {});
  EXPECT_EQ(map.layers(1, 0), (LayerRange{2, 4}));
  EXPECT_EQ(map.layers(0, 1), (LayerRange{4, 6}));
}

}  // namespace
}  // namespace triax::parallel

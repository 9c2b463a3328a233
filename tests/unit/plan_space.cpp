// The planner's space of layouts: everything it visits runs, nothing that runs is left out, and the closed-form memory
// is that of the formulas.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "io/options/validate.h"
#include "model/presets.h"
#include "plan/memory_report.h"
#include "plan/planner/quick_memory.h"
#include "plan/planner/space.h"

namespace triax::plan {
namespace {

using parallel::RecomputeGranularity;
using parallel::ScheduleKind;

io::RunOptions run_of(const char* model, int64_t global_batch, io::Precision precision = io::Precision::Bf16) {
  io::RunOptions options;
  options.model = model::find_preset(model)->config;
  options.batch.global_batch_size = global_batch;
  options.control.precision = precision;
  return options;
}

std::vector<Layout> all_layouts(const io::RunOptions& base, int devices, int per_node, const PlanSpace& space,
                                BrokenRules& broken) {
  std::vector<Layout> all;
  for_each_layout(base, devices, per_node, space, broken, [&](const Layout& layout) { all.push_back(layout); });
  return all;
}

std::string fault_of(const io::RunOptions& base, const Layout& layout, int devices) {
  io::RunOptions options = options_of(base, layout);
  try {
    io::resolve(options, devices, io::Purpose::Plan);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

TEST(PlanSpace, EveryVisitedLayoutRuns) {
  for (const auto& [model, batch, devices] : {std::tuple{"gpt2-124m", 24, 8}, std::tuple{"llama2-70b", 64, 64}}) {
    const io::RunOptions base = run_of(model, batch);
    BrokenRules broken;
    const std::vector<Layout> all = all_layouts(base, devices, 8, {}, broken);
    ASSERT_GT(all.size(), 1000u);
    for (const Layout& layout : all) {
      ASSERT_EQ(layout.tensor * layout.pipeline * layout.data, devices);
      ASSERT_EQ(fault_of(base, layout, devices), "") << text_of(layout);
    }
  }
}

/// Tries every value of a box of layouts, legal or not: what io::resolve takes is visited.
TEST(PlanSpace, NothingThatRunsIsLeftOut) {
  const io::RunOptions base = run_of("gpt2-124m", 12);
  PlanSpace space;
  space.zero = {0, 1};
  space.schedules = {ScheduleKind::OneFOneB, ScheduleKind::Interleaved};
  space.recompute = {RecomputeGranularity::None};
  space.orders = {comm::RankOrder::TpCpDpPp};
  BrokenRules broken;
  std::set<std::string> visited;
  const int devices = 6;
  for (const Layout& layout : all_layouts(base, devices, 6, space, broken)) visited.insert(text_of(layout));
  int legal = 0;
  for (int t = 1; t <= 6; ++t) {
    for (int p = 1; p <= 6; ++p) {
      if (devices % (t * p) != 0) continue;
      for (int v = 1; v <= 12 / p; ++v) {
        for (int b = 1; b <= 12; ++b) {
          for (int zero = 0; zero <= 1; ++zero) {
            for (const bool sp : {false, true}) {
              Layout layout{t, p, v, devices / t / p, v > 1 ? ScheduleKind::Interleaved : ScheduleKind::OneFOneB};
              layout.zero = zero;
              layout.shard_group = layout.data;
              layout.micro_batch = b;
              layout.sequence_parallel = sp;
              const bool trivial = (sp && t == 1) || (zero == 1 && layout.data == 1) || 12 % (p * v) != 0;
              if (trivial || !fault_of(base, layout, devices).empty()) continue;
              ++legal;
              EXPECT_TRUE(visited.contains(text_of(layout))) << text_of(layout);
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(legal, static_cast<int>(visited.size()));
  EXPECT_GT(legal, 50);
}

TEST(PlanSpace, BrokenRulesNameTheNumber) {
  io::RunOptions base = run_of("gpt2-124m", 12);
  PlanSpace space;
  space.tensor = {5, 8};
  BrokenRules broken;
  EXPECT_TRUE(all_layouts(base, 40, 8, space, broken).empty());
  EXPECT_EQ((broken[{PlanAxis::Tensor, 8}]), "must divide the 12 attention heads");
  EXPECT_EQ((broken[{PlanAxis::Tensor, 5}]), "must divide the 12 attention heads");
}

/// Layers divide evenly over all virtual stages: then the closed form is the formula's fullest stage, but for the
/// moment at which the last position's logits are counted.
TEST(PlanSpace, QuickMemoryIsTheFormulas) {
  using comm::CompressionMethod;
  for (const auto& [model, precision, method] :
       {std::tuple{"llama2-70b", io::Precision::Bf16, CompressionMethod::None},
        std::tuple{"llama2-70b", io::Precision::Bf16, CompressionMethod::Int8},
        std::tuple{"gpt3-175b", io::Precision::Fp16, CompressionMethod::None}}) {
    io::RunOptions base = run_of(model, 128, precision);
    base.parallel.compression.method = method;
    QuickMemory quick(base);
    BrokenRules broken;
    PlanSpace space;
    space.tensor = {1, 8};
    space.pipeline = {1, 4, 8};
    space.micro_batch = {1, 2};
    if (method != CompressionMethod::None) space.zero = {0, 1};  // a rule of the trainer
    StepShape numbers;
    int compared = 0;
    for (const Layout& layout : all_layouts(base, 64, 8, space, broken)) {
      if (method != CompressionMethod::None && layout.shard_group != layout.data) continue;  // another
      io::RunOptions options = options_of(base, layout);
      io::resolve(options, 64, io::Purpose::Plan);
      if (compared == 0) numbers = shape_of(options);
      MemoryTerms terms;
      terms.zero.stage = layout.zero;
      terms.zero.data_parallel = layout.data;
      terms.zero.shard_group = layout.shard_group;
      double fullest = 0;
      for (const model::StageMemory& stage : memory_by_formula(options, terms)) {
        fullest = std::max(fullest, static_cast<double>(stage.total()));
      }
      const StepShape shape = shape_of(numbers, base, layout);
      ASSERT_EQ(shape.num_micro_batches, options.batch.num_micro_batches);
      EXPECT_NEAR(quick.bytes(layout, shape) / fullest, 1, 0.01) << text_of(layout);
      ++compared;
    }
    EXPECT_GT(compared, 200);
  }
}

}  // namespace
}  // namespace triax::plan

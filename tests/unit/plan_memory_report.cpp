// The two engines of the memory report: what they agree on exactly, and that a short step stands for a long one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "io/options/options.h"
#include "io/options/validate.h"
#include "plan/memory_report.h"

namespace triax::plan {
namespace {

io::RunOptions options_of(std::vector<std::string> args, int ranks) {
  args.insert(args.end(), {"--micro-batch-size", "1"});
  io::RunOptions options = io::parse_options(args).options;
  io::resolve(options, ranks, io::Purpose::Plan);
  return options;
}

TEST(MemoryReport, widths_follow_precision_and_optimizer) {
  const auto widths = [](std::vector<std::string> args, GradientStorage gradients = GradientStorage::Wide) {
    args.insert(args.end(), {"--model", "t0"});
    return state_widths(options_of(args, 1), gradients);
  };
  EXPECT_EQ(widths({}), (model::StateWidths{2, 4, 12}));
  EXPECT_EQ(widths({}, GradientStorage::Bf16), (model::StateWidths{2, 2, 12}));
  EXPECT_EQ(widths({"--no-bf16"}), (model::StateWidths{4, 4, 8}));
  EXPECT_EQ(widths({"--fp64"}), (model::StateWidths{8, 8, 16}));
  EXPECT_EQ(widths({"--optimizer", "sgd"}), (model::StateWidths{2, 4, 8}));
  EXPECT_EQ(widths({"--optimizer", "sgd", "--sgd-momentum", "0"}), (model::StateWidths{2, 4, 4}));
}

// States: formula + named padding = what the trainer allocates, to the byte.
TEST(MemoryReport, states_agree_with_the_trainer_once_padding_is_added) {
  const std::vector<std::vector<std::string>> layouts = {
      {"--model", "t0"},
      {"--model", "t0", "--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"},
      {"--model", "t1", "--tensor-model-parallel-size", "4", "--sequence-parallel", "--no-bf16"},
      {"--model", "t1", "--pipeline-model-parallel-size", "4", "--optimizer", "sgd"},
  };
  for (std::vector<std::string> args : layouts) {
    args.insert(args.end(), {"--global-batch-size", "8"});
    const io::RunOptions options = options_of(args, 4);
    const std::vector<model::StageMemory> formula = memory_by_formula(options, {});
    const model::StateWidths widths = state_widths(options, GradientStorage::Wide);
    const ExactMemory exact = exact_memory(options, options.batch.num_micro_batches, ExactScope::All);
    ASSERT_EQ(exact.stages.size(), formula.size());
    for (const ExactStage& stage : exact.stages) {
      SCOPED_TRACE(stage.position);
      const model::StageMemory& m = formula[static_cast<size_t>(stage.position)];
      const train::MemoryForecast& f = stage.forecast;
      EXPECT_EQ(f.parameters, m.parameters);
      EXPECT_LT(f.alignment, 32 * 64);
      const auto peak = [&](MemoryCategory category) { return f.ledger.peak[static_cast<size_t>(category)]; };
      EXPECT_EQ(peak(MemoryCategory::Parameters), m.states.weights + widths.weights * f.alignment);
      EXPECT_EQ(peak(MemoryCategory::Gradients), m.states.gradients + widths.gradients * f.alignment);
      EXPECT_EQ(peak(MemoryCategory::Optimizer), m.states.optimizer + widths.optimizer * f.alignment);
    }
  }
}

// What compression keeps, by formula against the trainer's own allocation; a layer's vectors, which are not compressed,
// are the difference.
TEST(MemoryReport, residuals_of_compressed_gradients_are_counted) {
  for (const char* method : {"topk", "bf16", "int8", "qsgd", "onebit-adam", "powersgd"}) {
    for (const char* zero : {"0", "1"}) {
      if (std::string(method) == "onebit-adam" && std::string(zero) == "1") continue;  // it keeps the whole momentum
      SCOPED_TRACE(fmt::format("{} under ZeRO {}", method, zero));
      const io::RunOptions options = options_of(
          {"--model", "gpt2-124m", "--global-batch-size", "4", "--grad-compression", method, "--zero-stage", zero}, 4);
      const model::StageMemory formula = memory_by_formula(options, memory_terms_of(options))[0];
      const ExactMemory exact = exact_memory(options, 1, ExactScope::All);
      const double optimizer =
          static_cast<double>(exact.stages[0].forecast.ledger.peak[static_cast<size_t>(MemoryCategory::Optimizer)]);
      EXPECT_NEAR(static_cast<double>(formula.states.optimizer) / optimizer, 1, 0.002);
    }
  }
}

// Under ZeRO each rank holds its share of the padded flat arrays, whole units at a time; the formula's share differs
// by that padding only.
TEST(MemoryReport, shards_agree_with_the_trainer_once_padding_is_added) {
  struct Case {
    int stage;
    std::vector<std::string> more;
    int64_t group;    // g: states
    int64_t weights;  // ranks over which weights are cut; 1: whole
  };
  const std::vector<Case> cases = {{1, {}, 8, 1},
                                   {2, {}, 8, 1},
                                   {2, {"--zero-shard-group", "2"}, 2, 1},
                                   {3, {}, 8, 8},
                                   {3, {"--zero-shard-group", "4"}, 4, 4},
                                   {3, {"--zero-hpz-partition-size", "2"}, 8, 2}};
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("stage {}, g {}, weights over {}", c.stage, c.group, c.weights));
    std::vector<std::string> args = {"--model",
                                     "t1",
                                     "--global-batch-size",
                                     "16",
                                     "--zero-stage",
                                     std::to_string(c.stage),
                                     "--zero-param-persistence-threshold",
                                     "0"};
    args.insert(args.end(), c.more.begin(), c.more.end());
    const io::RunOptions options = options_of(args, 8);
    MemoryTerms terms;
    terms.zero = {c.stage, 8, c.group, c.weights == c.group || c.weights == 1 ? 0 : c.weights};
    const model::StageMemory m = memory_by_formula(options, terms)[0];
    const train::MemoryForecast f = exact_memory(options, 2, ExactScope::All).stages[0].forecast;
    const auto peak = [&](MemoryCategory category) { return f.ledger.peak[static_cast<size_t>(category)]; };
    const int64_t stored = f.parameters + f.alignment;
    EXPECT_EQ(f.parameters, m.parameters);
    EXPECT_EQ(stored % (32 * c.group), 0);
    EXPECT_EQ(peak(MemoryCategory::Parameters), 2 * stored / c.weights);
    EXPECT_EQ(peak(MemoryCategory::Gradients), 4 * stored / (c.stage >= 2 ? c.group : 1));
    EXPECT_EQ(peak(MemoryCategory::Optimizer), 12 * stored / c.group);
    const int64_t whole = m.parameters + m.states.padding_elements;
    EXPECT_EQ(m.states.optimizer, 12 * whole / c.group);
    EXPECT_LT(stored - whole, 32 * 8 * 16);
  }
}

TEST(MemoryReport, a_short_step_has_the_peak_of_a_long_one) {
  const std::vector<std::vector<std::string>> schedules = {
      {"--pipeline-schedule", "1f1b"},  {"--num-virtual-stages-per-pipeline-rank", "2"},
      {"--pipeline-schedule", "zb-h1"}, {"--pipeline-schedule", "zb-h2"},
      {"--pipeline-schedule", "zb-v"},
  };
  for (std::vector<std::string> args : schedules) {
    SCOPED_TRACE(args.back());
    args.insert(args.end(), {"--model", "t0", "--pipeline-model-parallel-size", "2", "--global-batch-size", "64"});
    const io::RunOptions options = options_of(args, 2);
    const int64_t shorter = equivalent_micro_batches(options);
    EXPECT_LE(shorter, 16);
    const ExactMemory of_short = exact_memory(options, shorter, ExactScope::All);
    const ExactMemory of_long = exact_memory(options, 64, ExactScope::Ends);
    ASSERT_EQ(of_short.stages.size(), of_long.stages.size());
    for (size_t i = 0; i < of_short.stages.size(); ++i) {
      EXPECT_EQ(of_short.stages[i].forecast.ledger.peak, of_long.stages[i].forecast.ledger.peak);
      EXPECT_EQ(of_short.stages[i].forecast.ledger.peak_total, of_long.stages[i].forecast.ledger.peak_total);
    }
  }
  // GPipe keeps every micro-batch.
  EXPECT_EQ(equivalent_micro_batches(options_of({"--model", "t0", "--pipeline-model-parallel-size", "2",
                                                 "--pipeline-schedule", "gpipe", "--global-batch-size", "64"},
                                                2)),
            64);
}

}  // namespace
}  // namespace triax::plan

// The planner's search: the best of a space is the best, nothing chosen exceeds the memory, reasons carry the right
// numbers, and a suggestion works.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "io/options/validate.h"
#include "model/presets.h"
#include "plan/hardware_presets.h"
#include "plan/planner/reasons.h"
#include "plan/planner/search.h"

namespace triax::plan {
namespace {

PlanQuestion question_of(const char* model, const char* hw, int devices, int64_t batch) {
  PlanQuestion q;
  q.base.model = model::find_preset(model)->config;
  q.base.batch.global_batch_size = batch;
  q.base.control.precision = io::Precision::Bf16;
  q.hardware = *find_hardware(hw);
  q.devices = devices;
  q.simulated = 6;
  return q;
}

TEST(PlanSearch, TheBestIsTheBestOfAll) {
  const PlanQuestion q = question_of("llama2-13b", "a100", 16, 64);
  const SearchResult result = survey(q);
  BrokenRules broken;
  int64_t layouts = 0, fitting = 0;
  double best = 1e300;
  for_each_layout(q.base, q.devices, q.hardware.devices_per_node, q.space, broken, [&](const Layout& layout) {
    ++layouts;
    const Candidate candidate = price(q, layout);
    if (candidate.bytes > q.limit_bytes()) return;
    ++fitting;
    best = std::min(best, candidate.time.step_s);
  });
  EXPECT_EQ(result.layouts, layouts);
  EXPECT_EQ(result.fitting, fitting);
  ASSERT_FALSE(result.ranked.empty());
  EXPECT_EQ(result.ranked.front().time.step_s, best);
  // The pool holds it too: what the sensitivities start from.
  EXPECT_EQ(fastest_of(q, result.pool)->time.step_s, best);
}

/// A million candidates are priced, each once: docs/performance.md times this question.
TEST(PlanSearch, AMillionLayoutsArePriced) {
  PlanQuestion q = question_of("gpt3-175b", "a100", 20160, 80640);
  q.space.tensor = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96};
  const SearchResult result = survey(q);
  EXPECT_EQ(result.layouts, 1'054'191);
  std::map<PlanAxis, std::pair<int64_t, int64_t>> sums;
  for (const auto& [key, summary] : result.values) {
    sums[key.first].first += summary.layouts;
    sums[key.first].second += summary.fitting;
  }
  EXPECT_EQ(sums.size(), static_cast<size_t>(kNumPlanAxes));
  for (const auto& [axis, sum] : sums) {
    EXPECT_EQ(sum.first, result.layouts) << name_of(axis);
    EXPECT_EQ(sum.second, result.fitting) << name_of(axis);
  }
  // No layout comes twice.
  std::set<std::array<int, kNumPlanAxes>> once;
  BrokenRules broken;
  q.space.pipeline = {1, 2, 4, 12};  // a part of them, since the set costs more than the prices
  int64_t visited = 0;
  for_each_layout(q.base, q.devices, q.hardware.devices_per_node, q.space, broken, [&](const Layout& layout) {
    std::array<int, kNumPlanAxes> values{};
    for (int axis = 0; axis < kNumPlanAxes; ++axis) {
      values[static_cast<size_t>(axis)] = value_of(layout, static_cast<PlanAxis>(axis));
    }
    once.insert(values);
    ++visited;
  });
  EXPECT_EQ(static_cast<int64_t>(once.size()), visited);
  EXPECT_GT(visited, 50'000);
}

TEST(PlanSearch, ChoicesFitAreSimulatedAndOrdered) {
  const PlanQuestion q = question_of("llama2-13b", "a100", 16, 64);
  const SearchResult result = search(q);
  ASSERT_GE(result.choices.size(), 2u);
  for (size_t i = 0; i < result.choices.size(); ++i) {
    const Choice& c = result.choices[i];
    for (const StagePrediction& stage : c.prediction.stages) EXPECT_LE(stage.bytes(), q.limit_bytes());
    // The same number as `triax sim` gives for these options.
    EXPECT_EQ(predict(c.options, q.hardware).step_ps, c.prediction.step_ps);
    EXPECT_GE(c.prediction.step_ps, result.choices[i > 0 ? i - 1 : 0].prediction.step_ps);
  }
  const std::vector<ValueNote> notes = value_notes(q, result);
  const Layout& winner = result.choices.front().layout;
  for (int axis = 0; axis < kNumPlanAxes; ++axis) {
    const auto which = static_cast<PlanAxis>(axis);
    EXPECT_EQ(std::ranges::count_if(notes, [&](const ValueNote& n) { return n.axis == which && n.chosen; }), 1)
        << name_of(which);
  }
  for (const ValueNote& note : notes) {
    EXPECT_EQ(note.chosen, note.value == value_of(winner, note.axis));
    EXPECT_EQ(note.reason.empty(), note.chosen);
  }
}

TEST(PlanSearch, LessMemoryNeverGivesAFasterStep) {
  PlanQuestion q = question_of("llama2-7b", "a100", 8, 64);
  double last = 0;
  for (const double share : {0.9, 0.6, 0.4, 0.3}) {
    q.memory_share = share;
    const SearchResult result = survey(q);
    if (result.ranked.empty()) break;
    EXPECT_GE(result.ranked.front().time.step_s, last);
    last = result.ranked.front().time.step_s;
  }
  EXPECT_GT(last, 0);
}

TEST(PlanSearch, InfeasibleSaysWhatIsMissingAndWhatWorks) {
  PlanQuestion q = question_of("llama2-70b", "a100", 2, 8);
  q.space.most_tensor = 2;
  const SearchResult result = search(q);
  ASSERT_TRUE(result.choices.empty());
  ASSERT_TRUE(result.smallest.has_value());
  EXPECT_GT(result.smallest->bytes, q.limit_bytes());
  const std::vector<std::string> notes = infeasible_notes(q, result);
  ASSERT_GE(notes.size(), 2u);
  EXPECT_NE(notes[0].find("GiB more than"), std::string::npos) << notes[0];
  const auto devices = std::stoi(notes[1]);
  q.devices = devices;
  q.base.batch.global_batch_size = std::max(8, devices);
  EXPECT_FALSE(survey(q).ranked.empty()) << notes[1];
}

/// r_TP = (2/9) (t-1) F / (h B) for GPT with f = 4h (notes of Narayanan 2021; biases and norms are 0.1 % of a layer).
TEST(PlanSearch, RatiosAreTheClosedForms) {
  PlanQuestion q = question_of("gpt3-175b", "a100", 64, 64);
  Layout layout;
  layout.tensor = 8;
  layout.pipeline = 8;
  const Ratios r = ratios_of(q, layout);
  const double h = 12288;
  EXPECT_NEAR(r.tp / (2.0 / 9 * 7 * r.flops / (h * r.tensor_bytes_per_s)), 1, 0.002);
  EXPECT_NEAR(r.pp / (8.0 / 18 * 8 * r.flops / (h * 96 * r.pipeline_bytes_per_s)), 1, 0.002);
  EXPECT_DOUBLE_EQ(r.zero3_tokens, r.flops / r.data_bytes_per_s);
  EXPECT_EQ(r.tokens, 2048);
}

TEST(PlanSearch, FasterLinksAndMoreMemoryNeverHurt) {
  const PlanQuestion q = question_of("llama2-13b", "a100", 16, 64);
  const SearchResult result = survey(q);
  for (const Sensitivity& s : sensitivities(q, result)) {
    if (s.change.starts_with("-")) {
      EXPECT_GE(s.step_change, 0) << s.change;
    } else {
      EXPECT_LE(s.step_change, 1e-12) << s.change;
    }
  }
}

}  // namespace
}  // namespace triax::plan

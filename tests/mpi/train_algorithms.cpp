// Training with every algorithm of the collectives: like one rank, and in fixed order with the very bits of the
// default.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/mpi/mpi_world.h"
#include "tests/mpi/train_harness.h"

namespace triax::test {
namespace {

constexpr int kSteps = 5;

struct Trained {
  std::vector<double> loss, norm;
  std::vector<double> weights;  ///< of this rank
  comm::SentBytes counted;
};

Trained train(TinyRun& run) {
  Trained t;
  for (int i = 0; i < kSteps; ++i) {
    const train::StepResult result = run.step();
    t.loss.push_back(result.totals.loss);
    t.norm.push_back(result.grad_norm);
  }
  const Tensor weights = run.trainer().store().flat_weight();
  t.weights.assign(weights.as<double>(), weights.as<double>() + weights.numel());
  t.counted = run.grid().ledger().total_counted();
  return t;
}

std::vector<Layout> layouts() {
  if (session().size() == 2) return {{.dp = 2}, {.tp = 2}};
  return {{.dp = 4},
          {.model = TinyModel::T1, .head = Head::Untied, .tp = 2, .dp = 2, .sp = parallel::SequenceParallel::Yes},
          {.pp = 2, .dp = 2}};
}

const std::vector<std::string> kAlgorithms{"library", "direct",      "ring",        "halving-doubling",
                                           "tree",    "double-tree", "hierarchical"};

io::RunOptions options_for(const Layout& layout, const std::string& algorithm) {
  io::RunOptions options = tiny_options(layout);
  options.parallel.collective_algorithm = algorithm;
  return options;
}

TEST(Algorithms, train_like_one_rank) {
  for (const Layout& layout : layouts()) {
    io::RunOptions serial = tiny_options(layout);
    serial.parallel = tiny_options({.model = layout.model, .head = layout.head}).parallel;
    TinyRun alone(serial);
    const Trained expected = train(alone);
    for (const std::string& algorithm : kAlgorithms) {
      SCOPED_TRACE(fmt::format("{} {}", algorithm, layout.text()));
      io::RunOptions options = options_for(layout, algorithm);
      options.control.fake_nodes = algorithm == "ring" ? 0 : 2;
      options.control.inject = "dp.links:uniform:0:1ms:seed=3,tp.links:uniform:0:100us:seed=4";
      TinyRun run(session(), options);
      const Trained actual = train(run);
      for (size_t i = 0; i < kSteps; ++i) {
        EXPECT_NEAR(actual.loss[i], expected.loss[i], 1e-10);
        EXPECT_NEAR(actual.norm[i], expected.norm[i], 1e-10);
      }
    }
  }
}

TEST(Algorithms, in_fixed_order_train_to_the_same_bits) {
  for (const Layout& layout : layouts()) {
    TinyRun usual(session(), tiny_options(layout));
    const Trained expected = train(usual);
    for (const std::string& algorithm : kAlgorithms) {
      if (algorithm == "library") continue;
      SCOPED_TRACE(fmt::format("{} {}", algorithm, layout.text()));
      io::RunOptions options = options_for(layout, algorithm);
      options.parallel.fixed_reduction_order = true;
      options.control.fake_nodes = 2;
      TinyRun run(session(), options);
      const Trained actual = train(run);
      EXPECT_EQ(actual.loss, expected.loss);
      EXPECT_EQ(actual.norm, expected.norm);
      EXPECT_EQ(actual.weights, expected.weights);
    }
  }
}

TEST(Algorithms, are_chosen_per_group) {
  io::RunOptions options = options_for({.dp = session().size()}, "dp=hierarchical");
  options.control.fake_nodes = 2;
  TinyRun run(session(), options);
  run.step();
  const auto entries = run.grid().ledger().snapshot();
  EXPECT_EQ(entries.at({"dp", comm::Operation::AllReduce}).converted_calls, 0);
  EXPECT_GT(entries.at({"dp", comm::Operation::AllReduce}).counted.across, 0);
}

}  // namespace
}  // namespace triax::test

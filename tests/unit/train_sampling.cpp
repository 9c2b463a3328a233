// Drawing a token: greedy, top-k, top-p, frequencies, determinism.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "train/text_generator.h"

namespace triax::train {
namespace {

// Probabilities 0.5, 0.25, 0.125, 0.125 at ids 2, 0, 1, 3.
const std::array<float, 4> kLogits{std::log(0.25f), std::log(0.125f), std::log(0.5f), std::log(0.125f)};

std::array<int, 4> counts(const SamplingOptions& options, int draws) {
  std::array<int, 4> n{};
  for (int i = 0; i < draws; ++i) ++n[static_cast<size_t>(sample_token(kLogits, options, static_cast<uint64_t>(i)))];
  return n;
}

TEST(SampleToken, temperature_0_takes_the_most_likely) {
  EXPECT_EQ(counts({.temperature = 0}, 10), (std::array<int, 4>{0, 0, 10, 0}));
}

TEST(SampleToken, frequencies_follow_the_probabilities) {
  const std::array<int, 4> n = counts({}, 20000);
  EXPECT_NEAR(n[2], 10000, 300);
  EXPECT_NEAR(n[0], 5000, 300);
  EXPECT_NEAR(n[1], 2500, 250);
  EXPECT_NEAR(n[3], 2500, 250);
}

TEST(SampleToken, temperature_sharpens) {
  const std::array<int, 4> n = counts({.temperature = 0.5}, 20000);  // squares: 16, 4, 1, 1 of 22
  EXPECT_NEAR(n[2], 20000 * 16 / 22, 300);
  EXPECT_NEAR(n[0], 20000 * 4 / 22, 300);
}

TEST(SampleToken, top_k_and_top_p_cut_the_tail) {
  const std::array<int, 4> k = counts({.top_k = 2}, 9000);
  EXPECT_EQ(k[1] + k[3], 0);
  EXPECT_NEAR(k[2], 6000, 250);
  const std::array<int, 4> p = counts({.top_p = 0.7}, 9000);
  EXPECT_EQ(p[1] + p[3], 0);
  EXPECT_NEAR(p[2], 6000, 250);
  EXPECT_EQ(counts({.top_p = 0.5}, 100), (std::array<int, 4>{0, 0, 100, 0}));
  const std::array<int, 4> tie = counts({.top_k = 3}, 9000);
  EXPECT_GT(tie[1], 0);  // of equals the lower id stays
  EXPECT_EQ(tie[3], 0);
}

TEST(SampleToken, depends_on_seed_and_index_only) {
  int differ = 0;
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(sample_token(kLogits, {.seed = 3}, i), sample_token(kLogits, {.seed = 3}, i));
    differ += sample_token(kLogits, {.seed = 3}, i) != sample_token(kLogits, {.seed = 4}, i) ? 1 : 0;
  }
  EXPECT_GT(differ, 10);
}

}  // namespace
}  // namespace triax::train

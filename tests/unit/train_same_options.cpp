// What all ranks of a run must be given alike, and how a difference is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/options/options.h"
#include "train/same_options.h"

namespace triax::train {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string common(const std::vector<std::string>& more) {
  std::vector<std::string> words{"--model", "t0", "--mock-data", "--micro-batch-size", "1", "--lr", "1e-3"};
  words.insert(words.end(), more.begin(), more.end());
  return common_options(io::parse_options(words).options);
}
std::string difference(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return first_difference(common(a), 0, common(b), 3);
}

TEST(SameOptions, what_is_computed_must_be_alike) {
  EXPECT_EQ(difference({}, {}), "");
  EXPECT_EQ(difference({}, {"--lr", "2e-3"}), "--lr: 0.001 on rank 0, 0.002 on rank 3");
  EXPECT_EQ(difference({"--seed", "7"}, {"--seed", "8"}), "--seed: 7 on rank 0, 8 on rank 3");
  EXPECT_THAT(difference({}, {"--fp8-format", "e4m3"}), HasSubstr("--fp8-format: "));
  EXPECT_NE(common({}), common({"--save-interval", "5"}));
}

TEST(SameOptions, the_same_value_given_in_another_way_is_alike) {
  EXPECT_EQ(common({}), common({"--lr", "0.001"}));
  EXPECT_EQ(common({"--lr", "5"}), common({"--lr", "4", "--lr=5"}));
}

TEST(SameOptions, a_node_may_have_paths_of_its_own) {
  EXPECT_EQ(common({"--save", "/a", "--load", "/b"}), common({"--save", "/c", "--load", "/d"}));
  EXPECT_EQ(common({"--metrics-file", "a"}), common({"--threads", "2"}));
  EXPECT_EQ(difference({"--save", "/a"}, {}), "--save: a path on rank 0, not given on rank 3");
  EXPECT_THAT(common({"--save", "/a"}), Not(HasSubstr("/a")));
}

}  // namespace
}  // namespace triax::train

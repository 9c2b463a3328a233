// Which ranks are called slow, and which loss is a spike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/loss_guard.h"
#include "train/straggler_watch.h"

namespace triax::train {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<RankReport> reports(const std::vector<double>& own_s) {
  std::vector<RankReport> all(own_s.size());
  for (size_t r = 0; r < own_s.size(); ++r) all[r].own_s = own_s[r];
  return all;
}

TEST(StragglerWatch, names_a_rank_above_the_median_of_its_position) {
  comm::GridShape shape;  // dp innermost here: ranks 0 to 3 are position 0, 4 to 7 position 1
  shape.data = 4;
  shape.pipeline = 2;
  StragglerWatch watch(shape, {"a", "a", "b", "b", "a", "a", "b", "b"}, 2, 1.5);
  // Position 1 holds the head and always takes twice as long: no fault of it.
  EXPECT_EQ(watch.add(1, reports({.010, .010, .010, .010, .020, .020, .020, .020})), "");
  const std::string line = watch.add(2, reports({.010, .010, .030, .010, .020, .020, .020, .025}));
  EXPECT_EQ(line,
            "slower than their peers in steps 1 to 2, own time a step: rank 2 (b, tp 0 pp 0 dp 2) 20.0 ms, median 10.0 "
            "ms, 2.00 times");
  // The next window starts anew.
  EXPECT_EQ(watch.add(3, reports(std::vector<double>(8, .01))), "");
  EXPECT_EQ(watch.add(4, reports(std::vector<double>(8, .01))), "");
}

TEST(StragglerWatch, of_two_the_slower_is_named_and_a_lone_rank_is_compared_with_all) {
  comm::GridShape two;
  two.data = 2;
  StragglerWatch pair(two, {"a", "a"}, 1, 1.5);
  EXPECT_THAT(pair.add(1, reports({.010, .016})), HasSubstr("rank 1 "));
  comm::GridShape pipeline;
  pipeline.pipeline = 4;
  StragglerWatch alone(pipeline, {"a", "a", "a", "a"}, 1, 1.5);
  const std::string line = alone.add(1, reports({.010, .040, .011, .012}));
  EXPECT_THAT(line, HasSubstr("rank 1 (a, tp 0 pp 1 dp 0) 40.0 ms, median 11.0 ms"));
  EXPECT_THAT(line, Not(HasSubstr("rank 3")));
}

TEST(StragglerWatch, the_slowest_come_first_and_no_more_than_eight) {
  comm::GridShape shape;
  shape.data = 32;
  std::vector<double> own_s(32, .001);
  for (size_t r = 0; r < 10; ++r) own_s[r] = .002 + .001 * static_cast<double>(r);
  StragglerWatch watch(shape, std::vector<std::string>(32, "a"), 1, 1.5);
  const std::string line = watch.add(1, reports(own_s));
  EXPECT_THAT(line, HasSubstr("own time a step: rank 9 "));
  EXPECT_THAT(line, HasSubstr("; 2 more"));
  EXPECT_THAT(line, Not(HasSubstr("rank 1 ")));
}

TEST(LossGuard, a_spike_is_measured_against_the_largest_loss_before) {
  LossGuard guard(10);
  EXPECT_EQ(guard.add(1, 5), "");  // the first has nothing to be compared with
  EXPECT_EQ(guard.add(2, 1), "");
  EXPECT_EQ(guard.add(3, 50), "");  // ten times the largest is not more than that
  EXPECT_THAT(guard.add(4, 501), HasSubstr("step 4: the loss is 501, more than 10 times the largest before it, 50 "));
}

}  // namespace
}  // namespace triax::train

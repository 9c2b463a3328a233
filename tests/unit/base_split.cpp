#include <gmock/gmock.h>

#include "base/split.h"

namespace triax {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Split, empty_parts_stay_but_for_one_at_the_end) {
  EXPECT_THAT(split("a", ','), ElementsAre("a"));
  EXPECT_THAT(split(",a,,b", ','), ElementsAre("", "a", "", "b"));
  EXPECT_THAT(split("a,b,", ','), ElementsAre("a", "b"));
  EXPECT_THAT(split("", ','), IsEmpty());
}

}  // namespace
}  // namespace triax

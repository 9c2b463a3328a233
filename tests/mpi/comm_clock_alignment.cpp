// Clocks that stand apart are compared to within the error that is said.
#include <gtest/gtest.h>
#include <mpi.h>

#include "base/clock.h"
#include "comm/clock_alignment.h"
#include "comm/process_grid.h"
#include "tests/mpi/mpi_world.h"

namespace triax::comm {
namespace {

using test::session;

TEST(ClockAlignment, FindsHowFarClocksStandApart) {
  GridOptions options;
  options.shape.data = session().size();
  ProcessGrid grid(session(), options);
  const int rank = session().rank(), half = session().size() / 2;
  std::vector<int> nodes;
  for (int r = 0; r < session().size(); ++r) nodes.push_back(r / half);
  // The second node is 1000.25 s ahead.
  const auto clock = [&] { return now_s() + (rank < half ? 0 : 1000.25); };
  const ClockAlignment alignment = align_clocks(grid.world(), nodes, clock);
  EXPECT_EQ(alignment.clocks, 2);
  EXPECT_GT(alignment.error_s, 0);
  EXPECT_LT(alignment.error_s, 1000);
  EXPECT_NEAR(alignment.offset_s, rank < half ? 0 : 1000.25, alignment.error_s);
  if (rank < half) {
    EXPECT_EQ(alignment.offset_s, 0);
  }
}

TEST(ClockAlignment, OneHostHasOneClock) {
  GridOptions options;
  options.shape.data = session().size();
  ProcessGrid grid(session(), options);
  const ClockAlignment alignment = grid.align_clocks();
  EXPECT_EQ(alignment.clocks, 1);
  EXPECT_EQ(alignment.offset_s, 0);
  EXPECT_EQ(alignment.error_s, 0);
}

}  // namespace
}  // namespace triax::comm

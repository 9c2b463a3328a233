// A blocking call that does not return ends the process with words, unless a parent looks after it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/last_words.h"
#include "base/watched_call.h"

namespace triax {
namespace {

void block_for_two_seconds(int parent_pid) {
  FlightRecorder flight;
  flight.header().timeout_s = 0.1;
  flight.set_process(::getpid(), parent_pid);
  const WatchedCall call(&flight, "MPI_Never");
  ::usleep(2'000'000);
  ::_exit(0);
}

TEST(WatchedCallDeathTest, ends_a_process_without_a_parent) {
  EXPECT_EXIT(block_for_two_seconds(0), testing::ExitedWithCode(5),
              "^rank 0 \\(.+\\) has waited in MPI_Never for [0-9.]+ s");
  EXPECT_EXIT(block_for_two_seconds(::getpid()), testing::ExitedWithCode(0), "^$");
}

TEST(WatchedCall, that_returns_ends_nothing) {
  FlightRecorder flight;
  flight.header().timeout_s = 0.1;
  { const WatchedCall call(&flight, "MPI_Fine"); }
  EXPECT_EQ(flight.header().unguarded_since_ns.load(), 0);
}

TEST(LastWords, the_rank_is_the_launchers) {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) unsetenv(name);
  EXPECT_EQ(launched_rank(), -1);
  setenv("SLURM_PROCID", "7", 1);
  EXPECT_EQ(launched_rank(), 7);
  setenv("PMI_RANK", "3", 1);
  EXPECT_EQ(launched_rank(), 3);
}

}  // namespace
}  // namespace triax

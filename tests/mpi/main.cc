// Runs all tests on every rank; fails when any rank fails. Other ranks' output is shown only when they fail.
#include <gtest/gtest.h>
#include <mpi.h>

#include <exception>
#include <iostream>
#include <sstream>

#include "base/log.h"
#include "comm/mpi_session.h"
#include "comm/wait.h"
#include "tests/mpi/mpi_world.h"

namespace {

triax::comm::MpiSession* the_session = nullptr;

/// Prints failures only, each with its rank.
class FailurePrinter final : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::ostringstream text;
    // An exception that a test lets out has no file.
    const char* file = result.file_name() != nullptr ? result.file_name() : "outside of the test's code";
    text << "rank " << rank_ << ": " << file << ":" << result.line_number() << ": " << result.summary() << "\n";
    std::cerr << text.str() << std::flush;
  }

 private:
  int rank_;
};

/// The largest of all ranks' values.
int largest(int value, const triax::comm::GroupInfo& world) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
  triax::comm::wait_all({&request, 1}, {}, world, triax::comm::Operation::AllReduce, 0);
  return value;
}

int run(int* argc, char*** argv) {
  triax::comm::MpiSession session(argc, argv);
  the_session = &session;
  triax::init_log("info", "rank " + std::to_string(session.rank()));
  testing::InitGoogleTest(argc, *argv);
  if (session.rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(session.rank()));  // gtest owns it
  }
  triax::comm::GroupInfo world{"world", session.rank(), {}, {}, 120};
  for (int r = 0; r < session.size(); ++r) {
    world.world_ranks.push_back(r);
    world.hosts.push_back(session.host());
  }
  const int failed = RUN_ALL_TESTS();
  const int tests = testing::UnitTest::GetInstance()->test_to_run_count();
  if (tests == 0) std::cerr << "no test was run\n";
  try {
    return largest(failed != 0 || tests == 0 ? 1 : 0, world);
  } catch (const std::exception& error) {
    std::cerr << "rank " << session.rank() << ": " << error.what() << "\n";
    session.abort(1);
  }
}

}  // namespace

triax::comm::MpiSession& triax::test::session() { return *the_session; }

int main(int argc, char** argv) { return run(&argc, &argv); }

#include "apps/session.h"

#include <fmt/format.h>
#include <mpi.h>

#include <new>
#include <thread>
#include <typeinfo>

#include "base/clock.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/last_words.h"
#include "base/watched_call.h"
#include "comm/mpi_check.h"

namespace triax::apps {
namespace {

struct CommunicatorPolicy {
  using type = MPI_Comm;
  static type null() noexcept { return MPI_COMM_NULL; }
  static void destroy(type comm) noexcept { MPI_Comm_free(&comm); }
};

// True when all ranks call it within a few seconds. A rank that failed alone waits in vain: the others are elsewhere.
bool all_ranks_agree(MPI_Comm comm) {
  constexpr double kPatience_s = 5;
  int one = 1;
  int sum = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request) != MPI_SUCCESS) return false;
  const Stopwatch watch;
  int done = 0;
  while (done == 0 && watch.elapsed_s() < kPatience_s) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return done != 0;
}

void print_failure(const comm::MpiSession& session, const RankName& name, const std::string& what) {
  const std::string place = name.place.empty() ? "" : ", " + name.place;
  say_last_words(fmt::format("rank {} ({}{}): {}\n", session.rank(), session.host(), place, what));
}

}  // namespace

std::string words_of(const std::exception& error) {
  if (typeid(error) != typeid(std::bad_alloc)) return error.what();
  return "out of memory (std::bad_alloc): 'triax mem' with these options says what each rank needs, 'triax plan' which "
         "layout fits";
}

int run_with_session(const std::function<int(comm::MpiSession&, RankName&)>& body, FlightRecorder* flight) {
  comm::MpiSession session(nullptr, nullptr, flight);
  if (flight != nullptr) {
    flight->set_rank(session.rank(), session.size(), session.host(), flight->header().timeout_s);
  }
  Handle<CommunicatorPolicy> agreement;
  {
    const WatchedCall call(flight, "MPI_Comm_dup");
    TRIAX_MPI(MPI_Comm_dup(MPI_COMM_WORLD, agreement.out()));
  }
  RankName name;
  try {
    return body(session, name);
  } catch (const ConfigError& error) {
    if (all_ranks_agree(agreement.get())) {
      if (session.rank() == 0) say_last_words(fmt::format("triax: {}\n", error.what()));
      return static_cast<int>(ExitCode::Usage);
    }
    if (flight != nullptr) flight->set_failure(FailureKind::Own, error.what());
    print_failure(session, name, error.what());
    session.abort(static_cast<int>(ExitCode::Usage));
  } catch (const std::exception& error) {
    const std::string words = words_of(error);
    if (flight != nullptr) flight->set_failure(FailureKind::Own, words);
    print_failure(session, name, words);
    session.abort(static_cast<int>(ExitCode::RunTime));
  }
}

}  // namespace triax::apps

#include "comm/mpi_session.h"

#include <fmt/format.h>
#include <mpi.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "base/error.h"
#include "base/last_words.h"
#include "base/watched_call.h"
#include "comm/mpi_check.h"
#include "comm/wait.h"

namespace triax::comm {
namespace {

/// Slurm started several processes, but MPI found no process manager: every one believes to be rank 0 of 1.
void refuse_separate_worlds(int size) {
  if (size != 1) return;
  const char* step_tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  const char* tasks = step_tasks != nullptr ? step_tasks : std::getenv("SLURM_NTASKS");
  if (tasks == nullptr || std::atoi(tasks) <= 1) return;
  if (std::getenv("PMI_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr) return;
  throw ConfigError(
      fmt::format("Slurm has {0} tasks, but MPI sees a world of one process: all {0} would train alone. Start with "
                  "'srun --mpi=pmi2 -n {0} triax ...' (MPI's process manager must match: see 'srun --mpi=list'), or "
                  "with 'mpiexec -n {0} triax ...' inside the allocation.",
                  tasks));
}

}  // namespace

MpiSession::MpiSession(int* argc, char*** argv, FlightRecorder* flight) : flight_(flight) {
  const PhaseRecord phase(flight_, FlightPhase::StartMpi);
  const WatchedCall call(flight_, "MPI_Init_thread");
  int provided = MPI_THREAD_SINGLE;
  TRIAX_MPI(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided));
  TRIAX_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  TRIAX_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  TRIAX_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  set_timer_slack();
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  host_ = name.data();
  try {
    refuse_separate_worlds(size_);
    if (provided < MPI_THREAD_MULTIPLE) {
      throw ConfigError(
          "this MPI library gives no MPI_THREAD_MULTIPLE, which the communication thread needs; "
          "use one built with thread support");
    }
  } catch (const ConfigError&) {
    MPI_Finalize();
    throw;
  }
  MPI_Comm local = MPI_COMM_NULL;
  TRIAX_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local));
  TRIAX_MPI(MPI_Comm_rank(local, &local_rank_));
  TRIAX_MPI(MPI_Comm_size(local, &local_size_));
  host_leader_ = rank_;
  TRIAX_MPI(MPI_Bcast(&host_leader_, 1, MPI_INT, 0, local));
  TRIAX_MPI(MPI_Comm_free(&local));
}

MpiSession::~MpiSession() {
  // With an exception under way others may wait for this rank in a collective: finalising would wait for them.
  if (std::uncaught_exceptions() > 0) {
    spdlog::error("world rank {} leaves by an exception: the job is aborted", rank_);
    abort(static_cast<int>(ExitCode::RunTime));
  }
  const PhaseRecord phase(flight_, FlightPhase::Leave);
  const WatchedCall call(flight_, "MPI_Finalize");
  if (MPI_Finalize() != MPI_SUCCESS) spdlog::error("MPI_Finalize failed");
}

void MpiSession::abort(int exit_code) {
  spdlog::default_logger()->flush();
  std::fflush(nullptr);
  await_reader();
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace triax::comm

// Initialises and finalises MPI; the first object that main makes.
#pragma once

#include <string>

#include "base/flight_recorder.h"

namespace triax::comm {

/// MPI_Init_thread(MULTIPLE), MPI_ERRORS_RETURN on MPI_COMM_WORLD. Refuses (ConfigError, with the srun or mpiexec line
/// that works) a launch by Slurm whose processes came up as separate worlds of one.
class MpiSession {
 public:
  /// flight: notes what blocks without a deadline, for the process's parent; may be null.
  MpiSession(int* argc, char*** argv, FlightRecorder* flight = nullptr);
  ~MpiSession();  ///< finalises; an abort in progress does not
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& host() const { return host_; }
  /// Ranks of this host, and this rank's index among them.
  int local_size() const { return local_size_; }
  int local_rank() const { return local_rank_; }
  /// Lowest world rank of this host: the same for all its ranks, and for them alone.
  int host_leader() const { return host_leader_; }
  /// Ends the whole job with this exit code; other ranks may wait in a collective.
  [[noreturn]] void abort(int exit_code);

 private:
  int rank_ = 0, size_ = 1, local_size_ = 1, local_rank_ = 0, host_leader_ = 0;
  std::string host_;
  FlightRecorder* flight_ = nullptr;
};

}  // namespace triax::comm

// Runs a command that uses MPI, and ends the whole job when one rank fails: the others may wait for it in a collective.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "base/flight_recorder.h"
#include "comm/mpi_session.h"

namespace triax::apps {

/// What a rank tells of itself in an error message; the command fills it once the grid is known: "tp 1 pp 0 dp 1".
struct RankName {
  std::string place;
};

/// What an error says; one of memory that says nothing of itself (std::bad_alloc, but not the GPU's) gets the remedy.
std::string words_of(const std::exception& error);

/// Starts MPI, runs `body`, returns its exit code. A ConfigError that every rank throws (they validate the same
/// options) is printed once and returned as exit code 2. Any other exception is printed as "rank r (host, place): what"
/// and aborts the job with 2 (ConfigError) or 5.
/// flight: gets rank, size and host of the process, and its failure; may be null.
int run_with_session(const std::function<int(comm::MpiSession&, RankName&)>& body, FlightRecorder* flight = nullptr);

}  // namespace triax::apps

// Reads the flight recorder's files of a run, living or ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/flight_file.h"

namespace triax::io {

/// A whole record; times are seconds on the clock of the rank's host, as now_s().
struct FlightRow {
  uint64_t ticket = 0;
  double time_s = 0;
  FlightEvent event = FlightEvent::Begin;
  FlightKind kind = FlightKind::Phase;
  FlightLane lane = FlightLane::Caller;
  uint8_t code = 0;
  std::string group;  ///< of a communication
  int64_t number = 0;
  int step = 0, micro_batch = -1, chunk = -1;
};

/// "step 3 op 12 F chunk 0 micro-batch 1", "all_reduce #7 of dp", "phase load".
std::string describe(const FlightRow& row);

struct FlightFailure {
  FailureKind kind = FailureKind::None;
  double time_s = 0;
  std::string words;
};

/// What is known of one rank.
struct FlightRank {
  int rank = 0, world = 1, pid = 0;
  bool supervised = false;
  std::string host, place, path;
  double start_s = 0;        ///< on the clock of the host
  double start_epoch_s = 0;  ///< the same instant since 1970
  double timeout_s = 0;      ///< deadline of every wait
  int iteration = 0;         ///< last completed step
  bool gone = false;         ///< its process does not exist any more; false also where that cannot be seen from here
  bool completed = false;    ///< reached the end of the run
  int leaving = -1;          ///< exit code with which it was about to leave; -1: was not
  int signal = 0;            ///< last that asked it to stop
  std::string unguarded;     ///< blocking call of MPI in which it is; empty: none
  FlightFailure failure;
  EndKind end = EndKind::None;
  int end_value = 0;  ///< exit code or signal
  double end_s = 0;
  int stop_signal = 0;  ///< stopped by it
  double stopped_s = 0;
  std::vector<FlightRow> rows;  ///< in the order of writing; the ring's last 4096
  double epoch(double time_s) const { return start_epoch_s + time_s - start_s; }
};

/// Throws RunTimeError for a file that is not one or of another version.
FlightRank read_flight(const std::string& path);
/// All of a run directory, by rank. ConfigError when there are none.
std::vector<FlightRank> read_flights(const std::string& run_directory);

/// What a rank had begun and not ended, outermost first, and the last op that it completed.
struct FlightState {
  std::vector<FlightRow> open;
  std::optional<FlightRow> last_op;
  double last_s = 0;  ///< time of the last record
  /// The communication in which the training thread stands; null: it does not wait.
  const FlightRow* waits() const;
  /// The op under way; null: none.
  const FlightRow* op() const;
  const FlightRow* phase() const;
};
FlightState state_of(const FlightRank& rank);

}  // namespace triax::io

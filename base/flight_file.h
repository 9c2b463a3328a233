// The flight recorder's file: what one rank did last, in a form that outlives its sudden end. One file per rank, mapped
// into memory; docs/faults.md describes the format.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace triax {

inline constexpr std::array<char, 8> kFlightMagic{'T', 'R', 'I', 'A', 'X', 'F', 'L', 'T'};
inline constexpr uint32_t kFlightVersion = 1;
inline constexpr uint32_t kFlightHeaderBytes = 8192;
inline constexpr uint32_t kFlightRecords = 4096;  ///< of the ring

enum class FlightEvent : uint8_t { Begin = 1, End = 2 };
/// What `code` of a record means: a FlightPhase, a parallel::OpKind, a comm::Operation.
enum class FlightKind : uint8_t { Phase = 1, Op = 2, Communication = 3 };
/// Caller: the thread that trains. CommThread: collectives in the background. Control: the group that saving uses.
enum class FlightLane : uint8_t { Caller = 0, CommThread = 1, Control = 2 };
enum class FlightPhase : uint8_t { StartMpi, Build, Data, Load, Tune, Step, Evaluate, Save, Finish, Leave };
inline constexpr int kFlightPhases = 10;
/// "MPI start", "build", "data", "load", "tune", "step", "evaluate", "save", "finish", "leave".
const char* name_of(FlightPhase phase);

/// 40 bytes. A record is whole when its ticket is its number in the order of writing plus 1.
struct FlightRecord {
  std::atomic<uint64_t> ticket;  ///< written last; 0: never written or being written
  int64_t time_ns;               ///< CLOCK_MONOTONIC of the host
  int64_t number;                ///< Op: index in the position's program; Communication: sequence number in its group
  int32_t step;                  ///< iteration under way, from 1; 0 before the first
  int32_t micro_batch;           ///< Op; -1 else
  int16_t chunk;                 ///< Op; -1 else
  uint8_t event, kind, code, lane;
  uint8_t name;  ///< Communication: index of the group's name
  uint8_t reserved;
};
static_assert(sizeof(FlightRecord) == 40);

/// Own: this rank failed by itself. PeerLost: it waited in vain for another. Told: another rank's failure, which all
/// were told of.
enum class FailureKind : int32_t { None = 0, Own = 1, PeerLost = 2, Told = 3 };
enum class EndKind : int32_t { None = 0, Exited = 1, Signalled = 2 };

/// Times are CLOCK_MONOTONIC in ns; 0: never.
struct FlightHeader {
  std::array<char, 8> magic;
  uint32_t version, header_bytes, record_bytes, records;
  int32_t rank, world;
  int32_t pid, parent_pid;  ///< parent_pid 0: no supervisor
  std::array<char, 64> host;
  std::array<char, 32> place;                     ///< "tp 1 pp 0 dp 1"
  int64_t start_realtime_ns, start_monotonic_ns;  ///< the same instant on both clocks
  double timeout_s;                               ///< deadline of every wait
  std::atomic<uint64_t> written;                  ///< records so far
  std::atomic<int32_t> iteration;                 ///< last completed step
  std::atomic<int32_t> completed;                 ///< 1: the run has reached its end on this rank
  std::atomic<int32_t> leaving;                   ///< exit code with which the rank is about to leave; -1: not yet
  std::atomic<int32_t> signal;                    ///< last that asked the rank to stop; 0: none
  std::atomic<int64_t> unguarded_since_ns;        ///< in a blocking call of MPI, which has no deadline of its own
  std::array<char, 64> unguarded;                 ///< its name
  std::atomic<int32_t> failure_kind;              ///< FailureKind; written after time and words
  int64_t failure_time_ns;
  std::array<char, 1024> failure_words;
  std::array<char, 1024> path;                 ///< of the file, once there is one
  std::array<std::array<char, 24>, 64> names;  ///< of groups
  /// Written by the rank's parent.
  struct alignas(64) End {
    std::atomic<int32_t> kind;  ///< EndKind; written last
    int32_t value;              ///< exit code or signal
    int64_t time_ns;
    std::atomic<int32_t> stop_signal;  ///< stopped by it and not continued; 0: runs
    int32_t reserved;
    int64_t stopped_ns;
  } end;
};
static_assert(sizeof(FlightHeader) <= kFlightHeaderBytes);
inline constexpr size_t kFlightFileBytes = kFlightHeaderBytes + sizeof(FlightRecord) * kFlightRecords;

/// "RUN_DIR/flight" and the file of a rank in it.
std::string flight_directory(const std::string& run_directory);
std::string flight_path(const std::string& run_directory, int rank);
/// The run directory of a rank's file; empty while it has none.
std::string run_directory_of(const FlightHeader& header);

}  // namespace triax

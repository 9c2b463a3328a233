// Writes down what a rank begins and ends: program ops, waits for others, phases. Cheap enough to be always on: one
// clock and one record of 40 bytes for each event.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "base/flight_file.h"

namespace triax {

/// Shared memory from its construction, so that a parent process sees it; a file from attach() on. All records may come
/// from any thread. Where a pointer to one is asked for, null records nothing.
class FlightRecorder {
 public:
  FlightRecorder();
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Of this process, after a fork.
  void set_process(int pid, int parent_pid);
  void set_rank(int rank, int world, const std::string& host, double timeout_s);
  void set_place(const std::string& place);
  /// From now on the records lie in flight_path(run_directory, rank), what was recorded so far included. Throws
  /// RunTimeError when the file cannot be made; then recording goes on in memory.
  void attach(const std::string& run_directory);
  /// Index of a group's name, for communication records. Beyond 63 names all share the last, "other groups".
  uint8_t name_index(std::string_view name);

  struct Entry {
    FlightKind kind = FlightKind::Phase;
    uint8_t code = 0;
    FlightLane lane = FlightLane::Caller;
    uint8_t name = 0;
    int64_t number = 0;
    int32_t micro_batch = -1;
    int16_t chunk = -1;
  };
  void begin(const Entry& entry) { write(FlightEvent::Begin, entry); }
  void end(const Entry& entry) { write(FlightEvent::End, entry); }
  void set_step(int64_t step) { step_.store(static_cast<int32_t>(step), std::memory_order_relaxed); }
  void set_iteration(int64_t completed) {
    header().iteration.store(static_cast<int32_t>(completed), std::memory_order_relaxed);
  }
  /// Why this rank fails. The first call counts.
  void set_failure(FailureKind kind, std::string_view words);
  FlightHeader& header() const { return *static_cast<FlightHeader*>(memory_); }

 private:
  void write(FlightEvent event, const Entry& entry);
  FlightRecord* records() const;
  void* memory_ = nullptr;
  std::atomic<int32_t> step_{0};
  std::mutex mutex_;  ///< names, failure
};

/// A phase from construction to destruction; left open when an exception ends it, so that the file says where it was.
class PhaseRecord {
 public:
  PhaseRecord(FlightRecorder* recorder, FlightPhase phase);
  ~PhaseRecord();
  PhaseRecord(const PhaseRecord&) = delete;
  PhaseRecord& operator=(const PhaseRecord&) = delete;

 private:
  FlightRecorder* recorder_;
  FlightRecorder::Entry entry_;
  int exceptions_;
};

/// A call of MPI that blocks without a deadline: the rank's parent watches it.
class UnguardedCall {
 public:
  UnguardedCall(FlightRecorder* recorder, const char* name);
  ~UnguardedCall();
  UnguardedCall(const UnguardedCall&) = delete;
  UnguardedCall& operator=(const UnguardedCall&) = delete;

 private:
  FlightRecorder* recorder_;
};

}  // namespace triax

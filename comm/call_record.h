// Where the calls of a group are noted as they begin and end.
#pragma once

#include "base/flight_recorder.h"
#include "comm/ledger.h"

namespace triax::comm {

/// Where the calls of a group are noted as they begin and end; recorder may be null.
struct CallRecord {
  FlightRecorder* recorder = nullptr;
  FlightLane lane = FlightLane::Caller;
  uint8_t name = 0;  ///< of the group
  FlightRecorder::Entry entry(Operation op, int64_t number) const {
    return {FlightKind::Communication, static_cast<uint8_t>(op), lane, name, number};
  }
  void begin(Operation op, int64_t number) const {
    if (recorder != nullptr) recorder->begin(entry(op, number));
  }
  void end(Operation op, int64_t number) const {
    if (recorder != nullptr) recorder->end(entry(op, number));
  }
};

}  // namespace triax::comm

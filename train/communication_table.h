// What a run communicated: for every axis calls, bytes, seconds, bus bandwidth, exposed and hidden, and for tp by kind
// of layer: the measured cost of each form of parallelism.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/ledger.h"

namespace triax::train {

/// Means over all ranks.
struct CommunicationRow {
  std::string group;
  std::string kind;  ///< of layer, for a part of a group; empty: all of it
  comm::Operation op = comm::Operation::AllReduce;
  double calls = 0, payload_bytes = 0, sent_bytes = 0, busy_s = 0, exposed_s = 0;
  bool converted = false;  ///< some sent bytes are the payload times the busbw factor, not counted at sends
};

/// Sums over the ranks of `world`, divided by their number; collective (one all-gather of each rank's rows as text).
std::vector<CommunicationRow> gather_communication(const comm::Ledger& ledger, comm::Communicator& world);
/// Of this rank alone.
std::vector<CommunicationRow> own_communication(const comm::Ledger& ledger);

/// One line per row, per step: sent MB of a rank, busy ms, bus bandwidth (bytes sent / busy), exposed and hidden ms,
/// and what share of the steps' time was exposed. step_s: of all steps together.
std::string communication_text(const std::vector<CommunicationRow>& rows, int64_t steps, double step_s);

}  // namespace triax::train

// What the training steps of a run communicated: for every axis calls, bytes, seconds, bus bandwidth, exposed and
// hidden, and for tp by kind of layer: the measured cost of each form of parallelism.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/ledger.h"

namespace triax::train {

/// What this rank's ledger counted in training steps alone, without start-up, evaluation, saving. Takes its pictures of
/// the ledger only where steps begin after something else, or end: a steady step allocates nothing for it.
class StepCommunication {
 public:
  using Entries = std::map<comm::Ledger::Key, comm::LedgerEntry>;
  /// A training step starts.
  void enter(const comm::Ledger& ledger);
  /// Something else starts; nothing when no step came before it.
  void leave(const comm::Ledger& ledger);
  /// Since leave() the ledger has learned how long the steps' operations waited for their last member: adds that alone.
  void add_waited(const comm::Ledger& ledger);
  bool inside() const { return inside_; }
  /// Of all steps left behind, by (group, operation) and by (kind of layer, operation).
  const Entries& by_group() const { return by_group_; }
  const Entries& by_label() const { return by_label_; }

 private:
  bool inside_ = false;
  Entries group_start_, label_start_, group_end_, label_end_, by_group_, by_label_;
};

/// Means over all ranks.
struct CommunicationRow {
  std::string group;
  std::string kind;  ///< of layer, for a part of a group; empty: all of it
  comm::Operation op = comm::Operation::AllReduce;
  double calls = 0, payload_bytes = 0, sent_bytes = 0, busy_s = 0, exposed_s = 0;
  double waited_s = 0;  ///< of busy_s, until the last member had come; of met_calls calls
  double met_calls = 0;
  double across_bytes = 0;  ///< of the sent bytes that were counted, those to ranks on other nodes
  bool converted = false;   ///< some sent bytes are the payload times the busbw factor, not counted at sends
};

/// Sums over the ranks of `world`, divided by their number; collective (one all-gather of each rank's rows as text).
std::vector<CommunicationRow> gather_communication(const StepCommunication& steps, comm::Communicator& world);
/// Of this rank alone.
std::vector<CommunicationRow> own_communication(const StepCommunication& steps);

/// Whose rows they are, and of which steps.
enum class CommunicationScope { AllRanks, FailedRank };

/// One line per row, per step: sent MB of a rank, busy ms, of these the ms until the last member had come ("-" where
/// unknown: on the host), bus bandwidth (bytes sent / the rest of busy), exposed and hidden ms, and what share of the
/// steps' time was exposed. step_s: of all steps together.
/// FailedRank: the waits of the step that failed are in it, said in the heading.
std::string communication_text(const std::vector<CommunicationRow>& rows, int64_t steps, double step_s,
                               CommunicationScope scope);

/// The same rows as a JSON list for summary.json, per step: group, kind, operation, calls, payload_bytes, sent_bytes,
/// across_bytes, busy_ms, waited_ms (null where unknown), exposed_ms, converted.
std::string communication_json(const std::vector<CommunicationRow>& rows, int64_t steps);

}  // namespace triax::train

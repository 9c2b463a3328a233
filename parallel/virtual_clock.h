// A clock that shows what a real run would take if its ops cost what a table says. Every rank advances its own
// (Lamport) clock along its program; ranks tell each other their times where the program makes them meet. The result is
// the simulator's, to the picosecond, over real communicators.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "parallel/idle.h"
#include "parallel/program.h"
#include "parallel/time_model.h"

namespace triax::parallel {

/// What one lane knows after a step.
struct StepTimes {
  int64_t makespan_ps = 0;  ///< of all lanes
  int64_t span_ps = 0;      ///< first F to last W of the longest lane
  int64_t busy_ps = 0;      ///< of this lane
  IdleSplit idle;           ///< of this lane; busy + idle = makespan
};

class VirtualClock {
 public:
  /// The lane of this rank: position in `pipeline`, replica in `data`; tp ranks of one lane all do the same. Program
  /// and table must outlive the clock. Throws what TimeModel throws.
  VirtualClock(const Program& program, const CostTable& table, const TimeOptions& options, comm::Communicator& pipeline,
               comm::Communicator& data);

  /// Back to 0 for the next step.
  void start_step();
  /// Advances over op `index` of this position; called for every op in order. Sends 8 bytes for each send (tag: matches
  /// + match id), receives them for each receive; SumTied exchanges 8 bytes with the partner; ReduceGradients takes the
  /// maximum over `data` and GradientNorm that over `pipeline`.
  void advance(int index);
  /// After the last op. All-reduces over `pipeline` and `data`.
  StepTimes finish_step();

  int64_t now_ps() const { return now_ps_; }
  /// Of this step; times()[k] belongs to op k.
  std::span<const OpTime> times() const { return times_; }

 private:
  struct Sent {
    int64_t arrival_ps;
    comm::Work work;
  };
  const Op& op(int index) const { return ops_[static_cast<size_t>(index)]; }
  int tag_of(const Op& op) const { return static_cast<int>(2 * num_matches_ + op.match); }
  int64_t duration_ps(int index) const { return model_.duration_ps(lane_, op(index), index); }
  void send(int64_t value, int peer, int tag);
  int64_t receive(int peer, int tag);
  static int64_t largest(int64_t value, comm::Communicator& group);
  int64_t largest_with_tied_partner(int64_t value);
  void reduce(int index);
  void norm(int index);

  const Program* program_;
  comm::Communicator* pipeline_;
  comm::Communicator* data_;
  Lane lane_;
  TimeModel model_;
  std::span<const Op> ops_;
  int64_t num_matches_ = 0;
  std::vector<OpTime> times_;
  std::vector<int64_t> flights_;  ///< of receives
  std::deque<Sent> sent_;
  int64_t now_ps_ = 0;
  int64_t data_end_ps_ = 0;           ///< of the last op on the data stream
  std::vector<int64_t> gathered_ps_;  ///< [chunk]: when the gathers that its forward waits for were through
  int64_t norm_start_ps_ = -1;
};

}  // namespace triax::parallel

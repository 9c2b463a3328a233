// Where a pipeline position's time goes when it does not compute: one accounting for simulated and real steps.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "parallel/program.h"

namespace triax::parallel {

/// When an op ran, from the start of the step.
struct OpTime {
  int64_t start_ps = 0, stop_ps = 0;
  bool operator==(const OpTime&) const = default;
};

enum class IdleCause : uint8_t {
  Fill,        ///< waits before the position's first backward, without what its message spent on the wire
  Drain,       ///< waits after its last forward, and from its last backward until the whole pipeline has ended
  Imbalance,   ///< waits between: another position is slower
  PeerToPeer,  ///< part of any wait in which the awaited message was on the wire
  DataSync,    ///< gradient sums and gathers that nothing hides: within the pass, and from its end to the norm
  Optimizer,   ///< norm, optimizer step, gathers behind it
};
inline constexpr int kNumIdleCauses = 6;
/// "fill", "drain", "imbalance", "p2p_wait", "dp_sync", "optimizer".
const char* name_of(IdleCause cause);

struct IdleSplit {
  std::array<int64_t, kNumIdleCauses> ps{};
  int64_t& operator[](IdleCause cause) { return ps[static_cast<size_t>(cause)]; }
  int64_t operator[](IdleCause cause) const { return ps[static_cast<size_t>(cause)]; }
  int64_t total() const;
  bool operator==(const IdleSplit&) const = default;
};

/// Op indices that part fill, steady state and drain.
struct PhaseBorders {
  int first_backward = 0;  ///< number of ops where there is none
  int last_forward = -1;
};
PhaseBorders phase_borders(std::span<const Op> ops);

/// Fed with the ops of one position in order.
class IdleAccount {
 public:
  explicit IdleAccount(PhaseBorders borders = {}) : borders_(borders) {}

  void compute(int64_t start_ps, int64_t stop_ps);
  /// A LoadBatch: busy, but not part of first_ps() to last_ps().
  void load(int64_t start_ps, int64_t stop_ps) { busy_ps_ += stop_ps - start_ps; }
  /// A wait for a message that was on the wire for `flight_ps`.
  void receive(int index, int64_t start_ps, int64_t stop_ps, int64_t flight_ps);
  /// A sum in which the position stood.
  void collective(int64_t start_ps, int64_t stop_ps);
  /// pass_end: last compute op of all positions; norm_start: when all sums were done; end: of the step.
  IdleSplit finish(int64_t pass_end_ps, int64_t norm_start_ps, int64_t end_ps) const;

  int64_t busy_ps() const { return busy_ps_; }
  int64_t first_ps() const { return first_ps_; }  ///< start of the first compute op, -1 before it
  int64_t last_ps() const { return last_ps_; }    ///< end of the last compute op

 private:
  PhaseBorders borders_;
  IdleSplit split_;
  int64_t pending_sync_ps_ = 0;  ///< sums since the last compute op: hidden by the drain if none follows
  int64_t busy_ps_ = 0, first_ps_ = -1, last_ps_ = 0;
};

/// Gradient sums and gathers on the data stream, beside which the position goes on.
bool beside_compute(const Op& op);

/// Feeds the op times of one position, real or virtual, in the order of the program. `flight_ps[k]`: time on the wire
/// of the message of op k, where it is a receive; empty: unknown, so that no wait counts as PeerToPeer.
IdleAccount account_of(std::span<const Op> ops, std::span<const OpTime> times, std::span<const int64_t> flight_ps);

}  // namespace triax::parallel

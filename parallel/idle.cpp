#include "parallel/idle.h"

#include <algorithm>
#include <numeric>

namespace triax::parallel {

const char* name_of(IdleCause cause) {
  constexpr std::array<const char*, kNumIdleCauses> kNames{"fill",     "drain",   "imbalance",
                                                           "p2p_wait", "dp_sync", "optimizer"};
  return kNames[static_cast<size_t>(cause)];
}

int64_t IdleSplit::total() const { return std::accumulate(ps.begin(), ps.end(), int64_t{0}); }

PhaseBorders phase_borders(std::span<const Op> ops) {
  PhaseBorders borders{static_cast<int>(ops.size()), -1};
  for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
    const OpKind kind = ops[static_cast<size_t>(i)].kind;
    if (is_backward_input(kind)) borders.first_backward = std::min(borders.first_backward, i);
    if (is_forward(kind)) borders.last_forward = i;
  }
  return borders;
}

void IdleAccount::compute(int64_t start_ps, int64_t stop_ps) {
  if (first_ps_ < 0) first_ps_ = start_ps;
  last_ps_ = stop_ps;
  busy_ps_ += stop_ps - start_ps;
  split_[IdleCause::DataSync] += pending_sync_ps_;
  pending_sync_ps_ = 0;
}

void IdleAccount::receive(int index, int64_t start_ps, int64_t stop_ps, int64_t flight_ps) {
  const int64_t on_wire = std::min(stop_ps - start_ps, flight_ps);
  split_[IdleCause::PeerToPeer] += on_wire;
  const IdleCause cause = index < borders_.first_backward ? IdleCause::Fill
                          : index > borders_.last_forward ? IdleCause::Drain
                                                          : IdleCause::Imbalance;
  split_[cause] += stop_ps - start_ps - on_wire;
}

void IdleAccount::collective(int64_t start_ps, int64_t stop_ps) { pending_sync_ps_ += stop_ps - start_ps; }

IdleSplit IdleAccount::finish(int64_t pass_end_ps, int64_t norm_start_ps, int64_t end_ps) const {
  IdleSplit split = split_;
  split[IdleCause::Drain] += pass_end_ps - last_ps_;
  split[IdleCause::DataSync] += norm_start_ps - pass_end_ps;
  split[IdleCause::Optimizer] += end_ps - norm_start_ps;
  return split;
}

bool beside_compute(const Op& op) {
  return op.stream == Stream::Data && (op.kind == OpKind::ReduceGradients || op.kind == OpKind::GatherParameters);
}

IdleAccount account_of(std::span<const Op> ops, std::span<const OpTime> times, std::span<const int64_t> flight_ps) {
  IdleAccount account(phase_borders(ops));
  std::vector<int> gathered;  // chunks whose first forward waits for gathers
  int64_t now_ps = 0;
  for (size_t k = 0; k < ops.size(); ++k) {
    const auto [start, stop] = times[k];
    const OpKind kind = ops[k].kind;
    if (beside_compute(ops[k])) {
      if (kind == OpKind::GatherParameters) gathered.push_back(ops[k].chunk);
      continue;
    }
    if (is_forward(kind) && std::erase(gathered, ops[k].chunk) > 0) account.collective(now_ps, std::max(now_ps, start));
    if (is_compute(kind)) account.compute(start, stop);
    if (kind == OpKind::LoadBatch) account.load(start, stop);
    if (is_message_gather(kind)) account.receive(static_cast<int>(k), start, stop, stop - start);
    if (is_receive(kind)) account.receive(static_cast<int>(k), start, stop, flight_ps.empty() ? 0 : flight_ps[k]);
    if (kind == OpKind::ReduceGradients || kind == OpKind::SumTied || kind == OpKind::SumTensorPartial) {
      account.collective(start, stop);
    }
    now_ps = stop;
  }
  return account;
}

}  // namespace triax::parallel

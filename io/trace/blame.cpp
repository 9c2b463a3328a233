#include "io/trace/blame.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

#include "base/error.h"

namespace triax::io {
namespace {

/// Ends that a launcher brings about when a job is already lost.
bool ended_by_request(const FlightRank& r) {
  return r.end == EndKind::Signalled && (r.end_value == SIGTERM || r.end_value == SIGINT || r.end_value == SIGHUP);
}

bool left_early(const FlightRank& r) { return r.end == EndKind::Exited && (r.leaving < 0 || r.leaving != r.end_value); }

struct Fault {
  const FlightRank* rank = nullptr;
  Verdict verdict = Verdict::Running;
  double at_s = 0;  ///< since 1970
  std::string reason;
};

/// A fault that the rank, or its parent, has recorded itself.
std::optional<Fault> own_fault(const FlightRank& r) {
  if (r.failure.kind == FailureKind::Own) {
    return Fault{&r, Verdict::Failed, r.epoch(r.failure.time_s), "failed: " + r.failure.words};
  }
  if (r.failure.kind != FailureKind::None || r.completed) return std::nullopt;
  if (r.end == EndKind::Signalled) {
    return Fault{&r, Verdict::Died, r.epoch(r.end_s),
                 fmt::format("was killed by signal {} ({})", r.end_value, signal_name(r.end_value))};
  }
  if (left_early(r)) {
    return Fault{&r, Verdict::Died, r.epoch(r.end_s),
                 fmt::format("left with exit code {} before the run was complete", r.end_value)};
  }
  return std::nullopt;
}

std::optional<Fault> first_fault(const std::vector<FlightRank>& ranks, std::vector<int>& also) {
  std::optional<Fault> first;
  const auto earlier = [](const Fault& a, const Fault& b) {
    // A launcher that ends a lost job may be quicker than the record of what it was lost by.
    const bool a_asked = ended_by_request(*a.rank);
    return a_asked != ended_by_request(*b.rank) ? !a_asked : a.at_s < b.at_s;
  };
  std::vector<Fault> all;
  for (const FlightRank& r : ranks) {
    if (const auto fault = own_fault(r)) all.push_back(*fault);
  }
  std::stable_sort(all.begin(), all.end(), earlier);
  for (const Fault& fault : all) {
    if (!first) {
      first = fault;
    } else {
      also.push_back(fault.rank->rank);
    }
  }
  return first;
}

std::optional<Fault> halted(const std::vector<FlightRank>& ranks) {
  std::optional<Fault> first;
  for (const FlightRank& r : ranks) {
    if (r.stop_signal == 0) continue;
    const double at_s = r.epoch(r.stopped_s);
    if (first && first->at_s <= at_s) continue;
    first = Fault{
        &r, Verdict::Halted, at_s,
        fmt::format("was stopped by signal {} ({}) and not continued", r.stop_signal, signal_name(r.stop_signal))};
  }
  return first;
}

/// Steps and ops done, as one order.
std::pair<int, int64_t> progress_of(const FlightState& state) {
  if (!state.last_op) return {0, -1};
  return {state.last_op->step, state.last_op->number};
}

/// Among ranks that recorded no fault: the one for which the others wait.
Fault least_suspicious_last(const std::vector<FlightRank>& ranks, bool waited) {
  const FlightRank* idle = nullptr;  // waits for nobody
  const FlightRank* least = nullptr;
  double idle_since = 0;
  for (const FlightRank& r : ranks) {
    const FlightState state = state_of(r);
    const double last = r.epoch(state.last_s);
    if (state.waits() == nullptr && r.failure.kind == FailureKind::None && (idle == nullptr || last < idle_since)) {
      idle = &r;
      idle_since = last;
    }
    if (least == nullptr || progress_of(state) < progress_of(state_of(*least))) least = &r;
  }
  if (idle != nullptr) {
    const FlightState state = state_of(*idle);
    const FlightRow* at = state.op() != nullptr ? state.op() : state.phase();
    const std::string where = at != nullptr ? describe(*at) : std::string("its start");
    return {idle, waited ? Verdict::Stuck : Verdict::KilledAll, idle_since,
            waited ? fmt::format("waits for nobody: it has been in {} since its last record", where)
                   : fmt::format("was in {} and waited for nobody, when no rank's end was recorded", where)};
  }
  return {least, waited ? Verdict::Deadlock : Verdict::KilledAll, 0,
          waited ? "came least far, while all ranks wait for each other"
                 : "came least far, when all ranks were killed from outside"};
}

bool all_of(const std::vector<FlightRank>& ranks, bool (*holds)(const FlightRank&)) {
  return std::all_of(ranks.begin(), ranks.end(), holds);
}

Blame blame_of(const Fault& fault, std::vector<int> also) {
  return {fault.verdict, fault.rank->rank, fault.reason, std::move(also), fault.at_s};
}

}  // namespace

const char* name_of(Verdict verdict) {
  constexpr std::array kNames{"completed", "stopped", "interrupted", "running",  "died",
                              "failed",    "halted",  "stuck",       "deadlock", "killed all"};
  return kNames[static_cast<size_t>(verdict)];
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

Blame find_blame(const std::vector<FlightRank>& ranks) {
  const int world = ranks.front().world;
  const bool whole = static_cast<int>(ranks.size()) == world;
  if (whole && all_of(ranks, [](const FlightRank& r) { return r.completed; })) return {Verdict::Completed, -1, "", {}};
  std::vector<int> also;
  if (const auto fault = first_fault(ranks, also)) {
    const auto asked = std::count_if(ranks.begin(), ranks.end(), ended_by_request);
    if (ended_by_request(*fault->rank) && 2 * asked > world) return {Verdict::Interrupted, -1, "", {}};
    return blame_of(*fault, also);
  }
  if (const auto fault = halted(ranks)) return blame_of(*fault, {});
  if (all_of(ranks, [](const FlightRank& r) { return r.leaving == 75; })) return {Verdict::Stopped, -1, "", {}};
  const bool told =
      std::any_of(ranks.begin(), ranks.end(), [](const auto& r) { return r.failure.kind == FailureKind::Told; });
  if (told) {
    const auto first =
        std::find_if(ranks.begin(), ranks.end(), [](const auto& r) { return r.failure.kind == FailureKind::Told; });
    return {Verdict::Failed,
            first->rank,
            "was told of a failure: " + first->failure.words,
            {},
            first->epoch(first->failure.time_s)};
  }
  const bool waited =
      std::any_of(ranks.begin(), ranks.end(), [](const auto& r) { return r.failure.kind == FailureKind::PeerLost; });
  if (!whole && waited) {
    // A node that is gone takes its files along where they lay on its own disk.
    for (int rank = 0; rank < world; ++rank) {
      const auto has = [&](const FlightRank& r) { return r.rank == rank; };
      if (std::none_of(ranks.begin(), ranks.end(), has)) return {Verdict::Stuck, rank, "left no record at all", {}, 0};
    }
  }
  // Killed with their parents, so that no end was recorded.
  const bool killed = std::any_of(ranks.begin(), ranks.end(),
                                  [](const auto& r) { return r.gone && r.end == EndKind::None && !r.completed; });
  if (!waited && !killed) return {};
  return blame_of(least_suspicious_last(ranks, waited), {});
}

}  // namespace triax::io

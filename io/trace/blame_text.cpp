// The report about a failed run, as text and JSON.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "io/trace/blame.h"

namespace triax::io {
namespace {

const FlightRank* find(const std::vector<FlightRank>& ranks, int rank) {
  const auto found = std::find_if(ranks.begin(), ranks.end(), [&](const auto& r) { return r.rank == rank; });
  return found != ranks.end() ? &*found : nullptr;
}

std::string full_name(const FlightRank& r) {
  return fmt::format("rank {} ({}{}{})", r.rank, r.host, r.place.empty() ? "" : ", ", r.place);
}

/// "step 3, micro-batch 1, op 5 (F)", from what was under way, or from the phase.
std::string where(const FlightRank& r, const FlightState& state) {
  std::string text;
  if (const FlightRow* op = state.op()) {
    text = describe(*op);
  } else if (const FlightRow* phase = state.phase()) {
    text = describe(*phase);
    if (phase->step > 0) text += fmt::format(" (step {})", phase->step);
  } else if (state.last_op) {
    text = fmt::format("step {}, between ops", state.last_op->step);
  } else {
    text = "start-up";
  }
  if (!r.unguarded.empty()) text += ", " + r.unguarded;
  if (const FlightRow* waits = state.waits()) text += ", " + describe(*waits);
  return text;
}

std::string activity(const FlightRank& r, const FlightState& state, double now) {
  if (r.end == EndKind::Signalled) return fmt::format("killed by {} in {}", signal_name(r.end_value), where(r, state));
  if (r.end == EndKind::Exited) return fmt::format("left with code {} in {}", r.end_value, where(r, state));
  if (r.stop_signal != 0) return fmt::format("stopped by {} in {}", signal_name(r.stop_signal), where(r, state));
  if (r.failure.kind == FailureKind::PeerLost) return fmt::format("waited in vain in {}", where(r, state));
  const FlightRow* waits = state.waits();
  const double since = waits != nullptr ? waits->time_s : state.last_s;
  return fmt::format("{} {:.1f} s in {}", waits != nullptr ? "waits" : "runs", std::max(0.0, now - r.epoch(since)),
                     where(r, state));
}

std::string doing(const FlightRank& r, const FlightState& state, double now) {
  if (r.completed) return "completed";
  // A launcher sends SIGKILL some time after it: was that time too short?
  const bool asked = r.signal != 0 && r.leaving < 0;
  return activity(r, state, now) + (asked ? fmt::format(", asked to stop by {}", signal_name(r.signal)) : "");
}

std::string last_op(const FlightState& state) { return state.last_op ? describe(*state.last_op) : "none"; }

double epoch_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Ranks on trial when there is a fault: what matters first.
std::vector<const FlightRank*> in_order(const std::vector<FlightRank>& ranks, const Blame& blame) {
  std::vector<const FlightRank*> order;
  for (const FlightRank& r : ranks) order.push_back(&r);
  std::stable_partition(order.begin(), order.end(), [&](const FlightRank* r) { return r->rank == blame.rank; });
  return order;
}

}  // namespace

std::string blame_text(const std::vector<FlightRank>& ranks, const Blame& blame, size_t most) {
  std::string text;
  const FlightRank* guilty = find(ranks, blame.rank);
  if (guilty != nullptr) {
    // Where nobody's end was recorded, the one named is no more than the likeliest.
    const bool guess = blame.verdict == Verdict::KilledAll;
    text += fmt::format("{}: {} {}\n", guess ? "no rank's end was recorded; a guess" : "at fault", full_name(*guilty),
                        blame.reason);
    text += fmt::format("  at {}; last step completed: {}\n", where(*guilty, state_of(*guilty)), guilty->iteration);
  } else if (blame.rank >= 0) {
    text += fmt::format("at fault: rank {} {}\n", blame.rank, blame.reason);
  } else {
    text += fmt::format("no rank is at fault: {}\n", name_of(blame.verdict));
  }
  if (!blame.also.empty()) text += fmt::format("  afterwards also: rank {}\n", fmt::join(blame.also, ", "));
  const double now = epoch_now();
  text += fmt::format("  {:>5} {:<16} {:<20} {:<36} {}\n", "rank", "host", "place", "last op completed", "state");
  size_t shown = 0;
  for (const FlightRank* r : in_order(ranks, blame)) {
    if (++shown > most) break;
    const FlightState state = state_of(*r);
    text += fmt::format("  {:>5} {:<16} {:<20} {:<36} {}\n", r->rank, r->host, r->place, last_op(state),
                        doing(*r, state, now));
  }
  if (ranks.size() > most) text += fmt::format("  and {} more ranks\n", ranks.size() - most);
  return text;
}

std::string blame_json(const std::vector<FlightRank>& ranks, const Blame& blame) {
  nlohmann::ordered_json json = {{"schema", "triax-blame"},
                                 {"version", 1},
                                 {"verdict", name_of(blame.verdict)},
                                 {"rank", blame.rank},
                                 {"reason", blame.reason},
                                 {"also", blame.also},
                                 {"time", blame.at_s},
                                 {"ranks", nlohmann::ordered_json::array()}};
  const double now = epoch_now();
  for (const FlightRank& r : ranks) {
    const FlightState state = state_of(r);
    const FlightRow* op = state.op();
    const FlightRow* waits = state.waits();
    nlohmann::ordered_json row = {{"rank", r.rank},
                                  {"host", r.host},
                                  {"place", r.place},
                                  {"iteration", r.iteration},
                                  {"last_op", last_op(state)},
                                  {"op", op != nullptr ? describe(*op) : ""},
                                  {"step", op != nullptr ? op->step : r.iteration},
                                  {"micro_batch", op != nullptr ? op->micro_batch : -1},
                                  {"waits_in", waits != nullptr ? describe(*waits) : ""},
                                  {"state", doing(r, state, now)},
                                  {"failure", r.failure.words}};
    json["ranks"].push_back(std::move(row));
  }
  return json.dump(2) + "\n";
}

std::string claim_failure_report(const std::string& run_directory) noexcept {
  try {
    const std::vector<FlightRank> ranks = read_flights(run_directory);
    const Blame blame = find_blame(ranks);
    if (blame.rank < 0) return {};
    const std::string path = flight_directory(run_directory) + "/failure.json";
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0) return {};
    const std::string json = blame_json(ranks, blame);
    const bool written = ::write(file, json.data(), json.size()) == static_cast<ssize_t>(json.size());
    ::close(file);
    std::string text = blame_text(ranks, blame);
    if (!written) text += fmt::format("  ({} could not be written)\n", path);
    return text + fmt::format("  details: triax trace blame {0}, triax trace flight {0}\n", run_directory);
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace triax::io

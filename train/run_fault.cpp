#include "train/run_fault.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/split.h"
#include "io/options/values.h"

namespace triax::train {
namespace {

constexpr const char* kPrefix = "fault:";
constexpr const char* kSlow = "slow:";
constexpr std::array kKinds{"kill", "stop", "exit", "throw", "hang", "segv"};
constexpr std::array kPhases{"start",  "load",      "data",   "forward", "backward", "message",
                             "reduce", "optimizer", "report", "save",    "finish"};

[[noreturn]] void refuse_run_fault(const std::string& part) {
  throw ConfigError(fmt::format(
      "--inject {}: expected fault:KIND:PHASE[:RANK[:STEP[:N]]], KIND one of kill, stop, exit, throw, hang, "
      "segv, PHASE one of start, load, data, forward, backward, message, reduce, optimizer, report, save, "
      "finish, the rest whole numbers: a rank from 0, step and N from 1",
      part));
}

template <class Names>
size_t index_of(const Names& names, const std::string& word, const std::string& part) {
  const auto found = std::find(names.begin(), names.end(), word);
  if (found == names.end()) refuse_run_fault(part);
  return static_cast<size_t>(found - names.begin());
}

std::optional<FaultPhase> phase_of(parallel::OpKind kind) {
  using parallel::OpKind;
  if (parallel::is_forward(kind)) return FaultPhase::Forward;
  if (parallel::is_backward_input(kind) || parallel::is_backward_weight(kind)) return FaultPhase::Backward;
  if (parallel::is_send(kind) || parallel::is_receive(kind) || parallel::is_message_gather(kind)) {
    return FaultPhase::Message;
  }
  if (kind == OpKind::OptimizerStep) return FaultPhase::Optimizer;
  if (kind == OpKind::LoadBatch || kind == OpKind::Recompute) return std::nullopt;
  return FaultPhase::Reduce;
}

bool in_a_step(FaultPhase phase) { return phase >= FaultPhase::Forward && phase <= FaultPhase::Report; }

}  // namespace

bool is_run_fault(const std::string& part) { return part.starts_with(kPrefix) || part.starts_with(kSlow); }

RunFault::RunFault(const std::string& inject, int rank, int world_size) {
  std::istringstream parts(inject);
  std::set<std::string> struck;  // kind of part and rank
  for (std::string part; std::getline(parts, part, ',');) {
    if (!is_run_fault(part)) continue;
    const std::vector<std::string> words = split(part, ':');
    const bool slow = part.starts_with(kSlow);
    const size_t at = slow ? 1 : 3;
    const std::string of = words.size() > at ? words[at] : "0";
    const std::optional<int64_t> named = io::parse_integer(of);
    if (named && *named >= world_size) {
      throw ConfigError(fmt::format("--inject {}: the run has the ranks 0 to {}", part, world_size - 1));
    }
    if (!struck.insert(fmt::format("{} {}", slow ? "slow" : "fault", of)).second) {
      throw ConfigError(fmt::format("--inject {}: rank {} has a part of that kind already", part, of));
    }
    if (part.starts_with(kPrefix)) read_fault(part, rank);
    if (part.starts_with(kSlow)) read_slowness(part, rank);
  }
}

void RunFault::read_fault(const std::string& part, int rank) {
  const std::vector<std::string> words = split(part, ':');
  if (words.size() < 3 || words.size() > 6) refuse_run_fault(part);
  const auto kind = static_cast<FaultKind>(index_of(kKinds, words[1], part));
  const auto phase = static_cast<FaultPhase>(index_of(kPhases, words[2], part));
  std::array<int64_t, 3> numbers{0, 1, 1};
  for (size_t i = 3; i < words.size(); ++i) {
    const std::optional<int64_t> value = io::parse_integer(words[i]);
    if (!value || *value < (i == 3 ? 0 : 1)) refuse_run_fault(part);
    numbers[i - 3] = *value;
  }
  if (numbers[0] != rank) return;
  armed_ = true;
  kind_ = kind;
  phase_ = phase;
  step_ = numbers[1];
  left_ = numbers[2];
}

void RunFault::read_slowness(const std::string& part, int rank) {
  const std::vector<std::string> words = split(part, ':');
  const std::optional<int64_t> slow = words.size() == 3 ? io::parse_integer(words[1]) : std::nullopt;
  const std::optional<double> ms = words.size() == 3 ? io::parse_real(words[2]) : std::nullopt;
  if (!slow || *slow < 0 || !ms || *ms < 0) {
    throw ConfigError(fmt::format("--inject {}: expected slow:RANK:MILLISECONDS", part));
  }
  if (*slow == rank) slow_s_ = *ms * 1e-3;
}

void RunFault::at(FaultPhase phase, int64_t step) {
  if (!armed_ || phase != phase_) return;
  if (in_a_step(phase) && step != step_) return;
  if (phase == FaultPhase::Save && step < step_) return;
  if (--left_ == 0) strike();
}

void RunFault::before(const parallel::Op& op, int64_t step) {
  if (slow_s_ > 0 && parallel::is_forward(op.kind)) {
    std::this_thread::sleep_for(std::chrono::duration<double>(slow_s_));
  }
  if (const std::optional<FaultPhase> phase = phase_of(op.kind)) at(*phase, step);
}

void RunFault::strike() const {
  switch (kind_) {
    case FaultKind::Kill:
      std::raise(SIGKILL);
      return;
    case FaultKind::Stop:
      std::raise(SIGSTOP);
      return;
    case FaultKind::Exit:
      ::_exit(0);
    case FaultKind::Throw:
      throw RunTimeError("fault on purpose");
    case FaultKind::Segv:
      std::signal(SIGSEGV, SIG_DFL);
      std::raise(SIGSEGV);
      return;
    case FaultKind::Hang:
      while (true) ::pause();
  }
}

}  // namespace triax::train

#include "apps/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/last_words.h"
#include "io/trace/blame.h"

namespace triax::apps {
namespace {

constexpr std::array kForwarded{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr double kTick_s = 0.5;  // between two looks at the deadline
/// Ranks that end at the same moment get their ends recorded before one of them reports.
constexpr std::chrono::milliseconds kExitSettle(150);
/// Another process reports: it may have many files to read.
constexpr std::chrono::milliseconds kOthersReport(2000);
/// A rank blocked in MPI is told of later than the one that is stopped, for which it waits.
constexpr double kGrace_s = 2;

int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Supervisor {
 public:
  Supervisor(FlightRecorder& flight, pid_t child, const sigset_t& signals)
      : flight_(&flight), child_(child), signals_(signals) {}

  int run() {
    while (true) {
      const timespec tick{0, static_cast<long>(kTick_s * 1e9)};
      siginfo_t info{};
      const int signal = sigtimedwait(&signals_, &info, &tick);
      if (signal > 0 && signal != SIGCHLD) {
        asked_ = signal;
        header().signal.store(signal);
        ::kill(child_, signal);
      }
      if (const std::optional<int> code = look_at_child()) return *code;
      if (const std::string reason = past_deadline(); !reason.empty()) return end_job(reason);
    }
  }

 private:
  /// The header as the rank sees it: in its file, once it has one. The rank is never without memory of its own.
  FlightHeader& header() {
    FlightHeader& first = flight_->header();
    if (file_ != nullptr) return *file_;
    if (first.path[0] == 0) return first;
    const int file = ::open(first.path.data(), O_RDWR | O_CLOEXEC);
    if (file < 0) return first;
    void* memory = ::mmap(nullptr, kFlightHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (memory == MAP_FAILED) return first;
    file_ = static_cast<FlightHeader*>(memory);
    return *file_;
  }

  /// Before MPI has started, as the launcher has it.
  std::string who() {
    const FlightHeader& h = header();
    if (h.rank >= 0) return fmt::format("rank {} ({})", h.rank, h.host.data());
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    const int rank = launched_rank();
    return rank < 0 ? fmt::format("a rank ({}, process {})", host.data(), h.pid)
                    : fmt::format("rank {} ({})", rank, host.data());
  }

  std::optional<int> look_at_child() {
    int status = 0;
    pid_t changed = 0;
    while ((changed = ::waitpid(child_, &status, WNOHANG | WUNTRACED | WCONTINUED)) == child_) {
      if (WIFSTOPPED(status)) {
        header().end.stopped_ns = monotonic_ns();
        header().end.stop_signal.store(WSTOPSIG(status));
      } else if (WIFCONTINUED(status)) {
        header().end.stop_signal.store(0);
      } else {
        return ended(status);
      }
    }
    if (changed >= 0 || errno != ECHILD) return std::nullopt;
    child_ = 0;
    return end_job("is gone, and nothing has told how it ended");
  }

  /// Time is counted in ticks: while the whole job is suspended, this process is too.
  std::string past_deadline() {
    const double now = now_s();
    const double passed = std::min(now - last_tick_, 2 * kTick_s);
    last_tick_ = now;
    const FlightHeader& h = header();
    const int stop = h.end.stop_signal.load();
    stopped_for_ = stop != 0 ? stopped_for_ + passed : 0;
    const int64_t unguarded = h.unguarded_since_ns.load();
    blocked_for_ = unguarded != 0 && unguarded == unguarded_ ? blocked_for_ + passed : 0;
    unguarded_ = unguarded;
    if (stopped_for_ > h.timeout_s) {
      return fmt::format("has been stopped by signal {} ({}) for {:.1f} s", stop, io::signal_name(stop), stopped_for_);
    }
    if (blocked_for_ > h.timeout_s + kGrace_s) {
      return fmt::format("has waited in {} for {:.1f} s", h.unguarded.data(), blocked_for_);
    }
    return {};
  }

  int ended(int status) {
    FlightHeader& h = header();
    const bool signalled = WIFSIGNALED(status);
    const int value = signalled ? WTERMSIG(status) : WEXITSTATUS(status);
    h.end.value = value;
    h.end.time_ns = monotonic_ns();
    h.end.kind.store(static_cast<int32_t>(signalled ? EndKind::Signalled : EndKind::Exited));
    child_ = 0;
    if (!signalled && h.leaving.load() == value) return value;
    // All was done; what it was asked to stop for is over.
    if (signalled && value == asked_ && h.leaving.load() >= 0) return h.leaving.load();
    // It has spoken for itself, and told the launcher.
    if (h.failure_kind.load() != static_cast<int32_t>(FailureKind::None)) return static_cast<int>(ExitCode::RunTime);
    const char* when = h.completed.load() != 0 ? "after" : "before";
    std::string reason = signalled ? fmt::format("was killed by signal {} ({})", value, io::signal_name(value))
                                   : fmt::format("left with exit code {} {} the run was complete", value, when);
    if (signalled && h.completed.load() != 0) reason += ", after the run was complete";
    if (signalled && value == asked_) reason += ", which it was sent before it could save";
    return end_job(reason);
  }

  int end_job(const std::string& reason) {
    const FlightHeader& h = header();
    end_by_force_after(io::report_patience_s(h.world), static_cast<int>(ExitCode::RunTime));
    // What all were asked to do, rank 0 says first, and ends the job.
    std::this_thread::sleep_for(asked_ != 0 && h.rank != 0 ? kOthersReport / 2 : kExitSettle);
    std::string text;
    if (file_ != nullptr) text = io::claim_failure_report(run_directory_of(h));
    const bool reports = file_ == nullptr || !text.empty();
    const std::string where = h.unguarded_since_ns.load() != 0 ? fmt::format(" in {}", h.unguarded.data()) : "";
    say_last_words(fmt::format("{} {}{}{}\n{}", who(), reason, where,
                               file_ == nullptr ? ", before there was a run directory" : "", text));
    if (!reports) std::this_thread::sleep_for(kOthersReport);
    abort_all_ranks(static_cast<int>(ExitCode::RunTime));
    if (child_ != 0) ::kill(child_, SIGKILL);
    return static_cast<int>(ExitCode::RunTime);
  }

  FlightRecorder* flight_;
  FlightHeader* file_ = nullptr;
  pid_t child_;
  sigset_t signals_;
  int asked_ = 0;  ///< last signal passed on
  double last_tick_ = now_s();
  double stopped_for_ = 0, blocked_for_ = 0;  ///< seconds
  int64_t unguarded_ = 0;
};

}  // namespace

std::optional<int> supervise(FlightRecorder& flight) {
  sigset_t signals;
  sigset_t before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int signal : kForwarded) sigaddset(&signals, signal);
  // Blocked before the fork, so that none is lost in between.
  sigprocmask(SIG_BLOCK, &signals, &before);
  // Where a launcher has them ignored, nothing would tell of the child's end.
  std::signal(SIGCHLD, SIG_DFL);
  const pid_t parent = ::getpid();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw RunTimeError(fmt::format("a rank's process cannot be made: {}", std::strerror(errno)));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(static_cast<int>(ExitCode::RunTime));
    flight.set_process(::getpid(), parent);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return std::nullopt;
  }
  // Whoever read this process's last words may be gone; the job is ended all the same.
  std::signal(SIGPIPE, SIG_IGN);
  return Supervisor(flight, child, signals).run();
}

void wake_supervisor() {
  // A parent that was killed has taken this process along: 1 is another's.
  if (const pid_t parent = ::getppid(); parent > 1) ::kill(parent, SIGCONT);
}

bool is_traced() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("TracerPid:")) return std::atoi(line.c_str() + sizeof("TracerPid:") - 1) != 0;
  }
  return false;
}

}  // namespace triax::apps

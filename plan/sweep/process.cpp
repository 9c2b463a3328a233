#include "plan/sweep/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <sstream>

#include "base/error.h"

namespace triax::plan {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kGraceSeconds = 10;
volatile std::sig_atomic_t received_signal = 0;

void remember(int signal) { received_signal = signal; }

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

int open_for_writing(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

// Only calls that are safe between fork and exec; the errno of a failure goes to the parent.
[[noreturn]] void become(const ProcessRequest& request, char* const* words, const std::array<int, 2>& files, int report,
                         pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);  // it died before prctl
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  const int null = ::open("/dev/null", O_RDONLY);
  const bool ready = null >= 0 && ::dup2(null, STDIN_FILENO) >= 0 && ::dup2(files[0], STDOUT_FILENO) >= 0 &&
                     ::dup2(files[1], STDERR_FILENO) >= 0 &&
                     (request.directory.empty() || ::chdir(request.directory.c_str()) == 0);
  if (ready) ::execvp(words[0], words);
  const int error = errno;
  static_cast<void>(!::write(report, &error, sizeof(error)));
  ::_exit(127);
}

pid_t start(const ProcessRequest& request) {
  std::vector<char*> words;
  for (const std::string& word : request.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const std::array<int, 2> files = {open_for_writing(request.stdout_path), open_for_writing(request.stderr_path)};
  std::array<int, 2> pipe{};
  if (files[0] < 0 || files[1] < 0 || ::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    throw RunTimeError(fmt::format("{}: cannot be written: {}", request.stdout_path, std::strerror(errno)));
  }
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) become(request, words.data(), files, pipe[1], parent);
  const int fork_error = errno;
  ::close(pipe[1]);
  ::close(files[0]);
  ::close(files[1]);
  int error = 0;
  const bool failed = child < 0 || ::read(pipe[0], &error, sizeof(error)) == sizeof(error);
  ::close(pipe[0]);
  if (!failed) return child;
  if (child > 0) ::waitpid(child, nullptr, 0);
  throw RunTimeError(
      fmt::format("{}: cannot be started: {}", request.command[0], std::strerror(child < 0 ? fork_error : error)));
}

void nap() {
  const timespec pause = {0, 20'000'000};
  ::nanosleep(&pause, nullptr);  // a signal ends it early
}

}  // namespace

ProcessResult run_process(const ProcessRequest& request) {
  const auto begin = Clock::now();
  const pid_t child = start(request);
  ProcessResult result;
  Clock::time_point told;  // SIGTERM
  bool stopping = false, killed = false;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    nap();
    if (!stopping) {
      result.interrupted = StopSignals::received() != 0;
      result.timed_out = !result.interrupted && request.timeout_s > 0 && seconds_since(begin) > request.timeout_s;
      stopping = result.interrupted || result.timed_out;
      if (stopping) {
        ::kill(-child, SIGTERM);
        told = Clock::now();
      }
    } else if (!killed && seconds_since(told) > kGraceSeconds) {
      killed = true;
      ::kill(-child, SIGKILL);
    }
  }
  result.wall_s = seconds_since(begin);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

StopSignals::StopSignals() {
  received_signal = 0;
  struct sigaction action = {};
  action.sa_handler = remember;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

StopSignals::~StopSignals() {
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
}

int StopSignals::received() { return received_signal; }

std::vector<std::string> split_command(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      if (inside) words.push_back(word);
      word.clear();
      inside = false;
      continue;
    }
    inside = true;
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
    } else {
      word += c;
    }
  }
  if (quote != 0) throw ConfigError(fmt::format("{}: a quote is not closed", text));
  if (inside) words.push_back(word);
  return words;
}

std::string find_program(const std::string& name) {
  const auto usable = [](const fs::path& path) {
    return fs::is_regular_file(path) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return usable(name) ? fs::absolute(name).string() : std::string();
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (usable(fs::path(folder) / name)) return (fs::path(folder) / name).string();
  }
  return {};
}

std::string own_binary() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return error ? std::string("triax") : path.string();
}

}  // namespace triax::plan

#include "base/last_words.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace triax {

void say_last_words(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void await_reader() noexcept {
  constexpr std::chrono::milliseconds kTick(20), kPassedOn(200);
  constexpr int kTicks = 100;
  struct stat kind {};
  const bool pipe = ::fstat(STDERR_FILENO, &kind) == 0 && S_ISFIFO(kind.st_mode);
  int unread = 0;
  for (int tick = 0; pipe && tick < kTicks && ::ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0; ++tick) {
    std::this_thread::sleep_for(kTick);
  }
  std::this_thread::sleep_for(kPassedOn);
}

int launched_rank() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name); rank != nullptr) return std::atoi(rank);
  }
  return -1;
}

void abort_all_ranks(int code) {
  const char* descriptor = std::getenv("PMI_FD");
  if (descriptor == nullptr) return;
  await_reader();
  const std::string command = fmt::format("cmd=abort exitcode={}\n", code);
  if (::write(std::atoi(descriptor), command.data(), command.size()) < 0) {
    say_last_words(fmt::format("triax: the process manager cannot be told to abort: {}\n", std::strerror(errno)));
  }
}

void end_by_force_after(double seconds, int code) {
  std::thread([seconds, code] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    abort_all_ranks(code);
    ::_exit(code);
  }).detach();
}

}  // namespace triax

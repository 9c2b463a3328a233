#include "base/last_words.h"

#include <fmt/format.h>
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

int launched_rank() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name); rank != nullptr) return std::atoi(rank);
  }
  return -1;
}

void abort_all_ranks(int code) {
  const char* descriptor = std::getenv("PMI_FD");
  if (descriptor == nullptr) return;
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

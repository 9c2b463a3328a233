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

namespace {

/// Bytes of a character that a terminal shows (or of a line's end or tab) at the start of `text`; 0: none is there.
size_t shown_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return (first >= 0x20 && first != 0x7f) || first == '\n' || first == '\t' ? 1 : 0;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool control = first == 0xc2 && byte(1) < 0xa0;
  return first < 0xc2 || first > 0xf4 || control ? 0 : length;
}

}  // namespace

void say_last_words(std::string_view text) noexcept {
  while (!text.empty()) {
    size_t shown = 0;
    while (shown < text.size()) {
      const size_t length = shown_length(text.substr(shown));
      if (length == 0) break;
      shown += length;
    }
    std::fwrite(text.data(), 1, shown, stderr);
    text.remove_prefix(shown);
    if (text.empty()) break;
    std::fprintf(stderr, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(text.front())));
    text.remove_prefix(1);
  }
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

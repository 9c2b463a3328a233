#include "train/save_fault.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/split.h"
#include "io/options/values.h"

namespace triax::train {
namespace {

[[noreturn]] void refuse_save_fault(const std::string& part) {
  throw ConfigError(
      fmt::format("--inject {}: expected kill-save:POINT[:RANK[:N]] with a point from 1 to {}, slow-save:SECONDS, or "
                  "disk-full:BYTES",
                  part, io::kSavePoints));
}

io::SaveHook kill(const std::string& part, const std::vector<std::string>& words, int rank) {
  int64_t numbers[3] = {0, 0, 1};
  for (size_t i = 1; i < words.size(); ++i) {
    const std::optional<int64_t> value = io::parse_integer(words[i]);
    if (!value || i > 3) refuse_save_fault(part);
    numbers[i - 1] = *value;
  }
  if (numbers[0] < 1 || numbers[0] > io::kSavePoints || numbers[2] < 1) refuse_save_fault(part);
  if (numbers[1] != rank) return {};
  const auto point = static_cast<io::SavePoint>(numbers[0] - 1);
  const auto left = std::make_shared<int64_t>(numbers[2]);
  return [point, left](io::SavePoint at) {
    if (at == point && --*left == 0) std::raise(SIGKILL);
  };
}

}  // namespace

bool is_save_fault(const std::string& part) {
  return part.starts_with("kill-save:") || part.starts_with("slow-save:") || part.starts_with("disk-full:");
}

io::SaveHook make_save_fault(const std::string& inject, int rank) {
  io::SaveHook hook;
  for (const std::string& part : split(inject, ',')) {
    if (!is_save_fault(part)) continue;
    const std::vector<std::string> words = split(part, ':');
    if (words.size() < 2) refuse_save_fault(part);
    if (words[0] == "kill-save") {
      hook = kill(part, words, rank);
      continue;
    }
    const std::optional<double> value = io::parse_real(words[1]);
    if (!value || *value < 0 || words.size() > 2) refuse_save_fault(part);
    if (words[0] == "slow-save") {
      const std::chrono::duration<double> pause(*value);
      hook = [pause](io::SavePoint at) {
        if (at == io::SavePoint::HalfWritten) std::this_thread::sleep_for(pause);
      };
    } else {
      std::signal(SIGXFSZ, SIG_IGN);
      const auto bytes = static_cast<rlim_t>(*value);
      const rlimit limit{bytes, bytes};
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) throw RunTimeError("--inject " + part + ": refused by the system");
    }
  }
  return hook;
}

}  // namespace triax::train

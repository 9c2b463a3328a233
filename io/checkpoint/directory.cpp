#include "io/checkpoint/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "io/checkpoint/index.h"
#include "io/data/atomic_file.h"

namespace triax::io {
namespace {

namespace fs = std::filesystem;
constexpr const char* kPrefix = "iter_";
constexpr const char* kLockFile = ".lock";
constexpr size_t kTrackerBytes = 64;

std::optional<int64_t> number_of(const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 0) return std::nullopt;
  return value;
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// Bytes that are no text do not reach the terminal.
std::string quoted(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return "'" + text + "'";
}

[[noreturn]] void cannot_read(const std::string& path, const std::string& why) {
  throw RunTimeError(fmt::format("{}: cannot be read: {}; give this user the right to read it", path, why));
}

/// Empty for no directory. One that cannot be read is not taken for one without checkpoints: that would begin anew.
std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  const bool none = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (error && !none) cannot_read(directory, error.message());
  return names;
}

bool exists(const std::string& path) {
  std::error_code error;
  const bool there = fs::exists(path, error);
  if (error) cannot_read(path, error.message());
  return there;
}

void rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    throw RunTimeError(fmt::format("cannot rename {} to {}: {}", from, to, std::strerror(errno)));
  }
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw RunTimeError(fmt::format("cannot remove {}: {}", path, error.message()));
}

bool is_step(const std::string& path) { return exists(path + "/" + kIndexFile) && exists(path + "/" + kChecksumFile); }

}  // namespace

std::string step_name(int64_t iteration) { return fmt::format("{}{:07}", kPrefix, iteration); }
std::string step_path(const std::string& directory, int64_t iteration) {
  return directory + "/" + step_name(iteration);
}
std::string unfinished_path(const std::string& directory, int64_t iteration) {
  return step_path(directory, iteration) + ".tmp";
}

std::vector<int64_t> complete_steps(const std::string& directory) {
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(directory)) {
    if (!name.starts_with(kPrefix)) continue;
    const std::optional<int64_t> step = number_of(name.substr(std::strlen(kPrefix)));
    if (step && name == step_name(*step) && is_step(directory + "/" + name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<int64_t> tracked_step(const std::string& directory) {
  const std::string path = directory + "/" + kTrackerFile;
  if (!exists(path)) return std::nullopt;
  errno = 0;
  std::ifstream file(path);
  if (!file) cannot_read(path, std::strerror(errno));
  // One more than any tracker needs: what is longer, or has no end, is none.
  std::array<char, kTrackerBytes + 1> bytes{};
  file.read(bytes.data(), bytes.size());
  std::string text(bytes.data(), static_cast<size_t>(file.gcount()));
  const bool whole = text.size() <= kTrackerBytes;
  while (whole && !text.empty() && is_blank(text.back())) text.pop_back();
  while (whole && !text.empty() && is_blank(text.front())) text.erase(0, 1);
  const std::optional<int64_t> step = whole ? number_of(text) : std::nullopt;
  if (!step) {
    throw DamagedTracker(
        fmt::format("{} is damaged: {} is no iteration: write the number of one of its iter_ directories", path,
                    whole ? quoted(text) : fmt::format("more than {} bytes", kTrackerBytes)));
  }
  return step;
}

std::optional<int64_t> latest_step(const std::string& directory) {
  const std::optional<int64_t> tracked = tracked_step(directory);
  if (tracked && is_step(step_path(directory, *tracked))) return tracked;
  const std::vector<int64_t> steps = complete_steps(directory);
  if (steps.empty()) return std::nullopt;
  return steps.back();
}

void remove_unfinished(const std::string& directory) {
  for (const std::string& name : names_in(directory)) {
    // A save of a step that was there already was killed between its two renames.
    if (!name.starts_with(kPrefix) || !name.ends_with(".old")) continue;
    const std::string final = directory + "/" + name.substr(0, name.size() - std::strlen(".old"));
    if (!exists(final) && is_step(final + ".tmp")) rename_path(final + ".tmp", final);
  }
  for (const std::string& name : names_in(directory)) {
    const bool step = name.starts_with(kPrefix) && (name.ends_with(".tmp") || name.ends_with(".old"));
    if (step || name.starts_with(std::string(kTrackerFile) + ".tmp.")) remove_tree(directory + "/" + name);
  }
}

void begin_step(const std::string& directory, int64_t iteration) {
  const std::string path = unfinished_path(directory, iteration);
  if (fs::exists(path)) remove_tree(path);
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw RunTimeError(fmt::format("--save {}: cannot make {}: {}", directory, path, error.message()));
}

void publish_step(const std::string& directory, int64_t iteration, const SaveHook& hook) {
  const std::string from = unfinished_path(directory, iteration);
  const std::string to = step_path(directory, iteration);
  if (fs::exists(to)) {
    const std::string old = to + ".old";
    if (fs::exists(old)) remove_tree(old);
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
      rename_path(from, old);
    } else {
      rename_path(to, old);
      rename_path(from, to);
    }
    make_durable(directory);
    remove_tree(old);
  } else {
    rename_path(from, to);
  }
  make_durable(directory);
  if (hook) hook(SavePoint::Renamed);
  AtomicFile tracker(directory + "/" + kTrackerFile);
  const std::string text = std::to_string(iteration) + "\n";
  tracker.write(text.data(), text.size());
  if (hook) hook(SavePoint::TrackerWritten);
  tracker.commit();
  if (hook) hook(SavePoint::Tracked);
}

std::vector<int64_t> expired_steps(const std::vector<int64_t>& steps, const Retention& retention) {
  std::vector<int64_t> expired;
  if (retention.keep_latest == 0) return expired;
  const auto keep = std::min(static_cast<size_t>(retention.keep_latest), steps.size());
  for (size_t i = 0; i + keep < steps.size(); ++i) {
    const bool retained = retention.retain_interval > 0 && steps[i] % retention.retain_interval == 0;
    if (!retained) expired.push_back(steps[i]);
  }
  return expired;
}

void remove_steps(const std::string& directory, const std::vector<int64_t>& steps, const SaveHook& hook) {
  for (const int64_t step : steps) {
    const std::string path = step_path(directory, step);
    if (fs::exists(path + ".old")) remove_tree(path + ".old");
    rename_path(path, path + ".old");
    if (hook) hook(SavePoint::RetentionHalf);
    remove_tree(path + ".old");
  }
}

int64_t step_bytes(const std::string& directory, int64_t iteration) {
  int64_t bytes = 0;
  std::error_code error;
  for (const std::string& name : names_in(step_path(directory, iteration))) {
    const auto size = fs::file_size(step_path(directory, iteration) + "/" + name, error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

int64_t free_bytes(const std::string& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0) {
    throw RunTimeError(fmt::format("{}: free space is unknown: {}", directory, std::strerror(errno)));
  }
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

DirectoryLock::DirectoryLock(const std::string& directory) {
  const std::string path = directory + "/" + kLockFile;
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    throw ConfigError(
        fmt::format("--save {}: cannot be written: {}; name a directory that can be", directory, std::strerror(errno)));
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    std::array<char, 256> text{};
    const ssize_t size = ::pread(descriptor_, text.data(), text.size() - 1, 0);
    ::close(descriptor_);
    throw ConfigError(fmt::format("--save {}: another run saves there ({}): wait for its end or name another directory",
                                  directory, size > 0 ? text.data() : "unknown"));
  }
  std::array<char, 128> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string text = fmt::format("process {} on {}", ::getpid(), host.data());
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::pwrite(descriptor_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    const int error = errno;
    ::close(descriptor_);
    throw ConfigError(
        fmt::format("--save {}: cannot be written: {}; name a directory that can be", directory, std::strerror(error)));
  }
}

DirectoryLock::~DirectoryLock() { ::close(descriptor_); }

std::string resolve_checkpoint(const std::string& path, int64_t iteration) {
  if (path.empty() || !exists(path)) return {};
  if (!fs::is_directory(path)) return path;
  if (iteration > 0) return is_step(step_path(path, iteration)) ? step_path(path, iteration) : std::string();
  if (is_step(path)) return path;
  const std::optional<int64_t> step = latest_step(path);
  if (step) return step_path(path, *step);
  const std::string earlier = path + "/weights.h5";
  return exists(earlier) ? earlier : std::string();
}

}  // namespace triax::io

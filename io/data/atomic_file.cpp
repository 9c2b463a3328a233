#include "io/data/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace triax::io {

namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

// Distinct over the processes of all hosts that share the directory, and over the files of one process.
std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> next{0};
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}.tmp.{}.{}.{}", path, host.data(), ::getpid(), next.fetch_add(1));
}

// What a rename would have to replace: the file behind a link, else the path itself.
std::string target_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

bool is_device_or_pipe(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode);
}

}  // namespace

void make_durable(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0 || ::fsync(descriptor) != 0) {
    const int error = errno;
    if (descriptor >= 0) ::close(descriptor);
    throw RunTimeError(fmt::format("cannot make {} durable: {}", path, std::strerror(error)));
  }
  ::close(descriptor);
}

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  buffer_.reserve(kBufferBytes);
  if (is_device_or_pipe(path)) {
    temporary_ = path;
    descriptor_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail("open");
    return;
  }
  path_ = target_of(path);
  temporary_ = temporary_name(path_);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("create");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (in_place()) return;
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t size_bytes) {
  const auto* bytes = static_cast<const std::byte*>(data);
  if (buffer_.size() + size_bytes > kBufferBytes) {
    write_through(buffer_.data(), buffer_.size());
    buffer_.clear();
    if (size_bytes >= kBufferBytes) {
      write_through(bytes, size_bytes);
      return;
    }
  }
  buffer_.insert(buffer_.end(), bytes, bytes + size_bytes);
}

void AtomicFile::write_through(const std::byte* data, size_t size_bytes) {
  while (size_bytes > 0) {
    const ssize_t written = ::write(descriptor_, data, size_bytes);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write");
    }
    data += written;
    size_bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
  if (in_place()) {
    const int closed = ::close(descriptor_);
    descriptor_ = -1;
    if (closed != 0) fail("write");
    return;
  }
  if (::fsync(descriptor_) != 0) fail("flush to disk");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename");
  ::close(descriptor_);
  descriptor_ = -1;
  // The rename itself is durable only once the directory is; file systems that cannot flush one say EINVAL.
  const std::filesystem::path parent = std::filesystem::path(path_).parent_path();
  const int directory = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
}

void AtomicFile::fail(const char* what) const {
  const std::string words = std::strerror(errno);
  const std::string place = in_place() ? "" : fmt::format(" (as {})", temporary_);
  throw RunTimeError(fmt::format("{}: cannot {}{}: {}", path_, what, place, words));
}

}  // namespace triax::io

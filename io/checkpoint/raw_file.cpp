#include "io/checkpoint/raw_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace triax::io {
namespace {

constexpr int64_t kTileBytes = int64_t{16} << 20;  // a transfer waits for the disk once
constexpr int64_t kCacheBytes = int64_t{128} << 10;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Aligned = std::unique_ptr<std::byte, Free>;

Aligned aligned_tile() {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(static_cast<size_t>(kDirectAlignment), kTileBytes));
  if (memory == nullptr) throw std::bad_alloc();
  return Aligned(memory);
}

struct Descriptor {
  explicit Descriptor(int descriptor) : value(descriptor) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value;
};

}  // namespace

struct RawWriter::Impl {
  explicit Impl(const std::string& name)
      : path(name),
        ordinary(::open(name.c_str(), O_WRONLY | O_CLOEXEC)),
        direct(::open(name.c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT)),
        tile(aligned_tile()) {
    if (ordinary.value < 0) fail();
  }
  [[noreturn]] void fail() const { throw RunTimeError(fmt::format("cannot write {}: {}", path, std::strerror(errno))); }
  /// False when the file system refuses direct transfers.
  bool put(int descriptor, const std::byte* data, int64_t size, int64_t offset) const {
    while (size > 0) {
      const ssize_t written = ::pwrite(descriptor, data, static_cast<size_t>(size), offset);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0 && errno == EINVAL && descriptor == direct.value) return false;
      if (written <= 0) fail();
      data += written;
      offset += written;
      size -= written;
      // A direct transfer that ended inside a block cannot go on directly.
      if (descriptor == direct.value && written % kDirectAlignment != 0) return put(ordinary.value, data, size, offset);
    }
    return true;
  }
  std::string path;
  Descriptor ordinary, direct;
  Aligned tile;
};

RawWriter::RawWriter(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
RawWriter::~RawWriter() = default;

void RawWriter::write(int64_t offset, const void* data, int64_t size, Checksum& checksum) {
  const auto* bytes = static_cast<const std::byte*>(data);
  const bool aligned = impl_->direct.value >= 0 && offset % kDirectAlignment == 0;
  const int64_t whole = aligned ? size / kDirectAlignment * kDirectAlignment : 0;
  int64_t done = 0;
  while (done < whole) {
    const int64_t part = std::min(kTileBytes, whole - done);
    for (int64_t at = 0; at < part; at += kCacheBytes) {
      const auto count = static_cast<size_t>(std::min(kCacheBytes, part - at));
      std::memcpy(impl_->tile.get() + at, bytes + done + at, count);
      checksum.add(impl_->tile.get() + at, count);
    }
    if (!impl_->put(impl_->direct.value, impl_->tile.get(), part, offset + done)) {
      // Refused: this part and the rest are written as usual, and this part is in the checksum already.
      put_ordinary(offset + done, bytes + done, part);
      done += part;
      break;
    }
    done += part;
  }
  while (done < size) {
    // Small steps, and the disk begins at once: the flush at the end has little left.
    const int64_t part = std::min(kTileBytes, size - done);
    checksum.add(bytes + done, static_cast<size_t>(part));
    put_ordinary(offset + done, bytes + done, part);
    done += part;
  }
}

void RawWriter::put_ordinary(int64_t offset, const std::byte* data, int64_t size) {
  impl_->put(impl_->ordinary.value, data, size, offset);
  if (size >= kCacheBytes) ::sync_file_range(impl_->ordinary.value, offset, size, SYNC_FILE_RANGE_WRITE);
}

struct RawReader::Impl {
  explicit Impl(const std::string& name)
      : path(name), file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)), tile(aligned_tile()) {
    if (file.value < 0 && errno == EINVAL) file.value = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (file.value < 0) throw RunTimeError(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  std::string path;
  Descriptor file;
  Aligned tile;
  int64_t at = 0;
};

RawReader::RawReader(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
RawReader::~RawReader() = default;

RawReader::Tile RawReader::next() {
  Impl& r = *impl_;
  for (;;) {
    const ssize_t count = ::pread(r.file.value, r.tile.get(), static_cast<size_t>(kTileBytes), r.at);
    if (count >= 0) {
      r.at += count;
      return {r.tile.get(), count};
    }
    if (errno == EINTR) continue;
    const int flags = ::fcntl(r.file.value, F_GETFL);
    if (errno == EINVAL && (flags & O_DIRECT) != 0) {
      // Refused here, or the end of the last tile was inside a block.
      ::fcntl(r.file.value, F_SETFL, flags & ~O_DIRECT);
      continue;
    }
    throw RunTimeError(fmt::format("cannot read {}: {}", r.path, std::strerror(errno)));
  }
}

}  // namespace triax::io

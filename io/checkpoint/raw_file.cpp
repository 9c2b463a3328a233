#include "io/checkpoint/raw_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>

#include "base/error.h"

namespace triax::io {
namespace {

constexpr int64_t kRawTileBytes = int64_t{4} << 20;
constexpr size_t kTilesUnderWay = 4;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Aligned = std::unique_ptr<std::byte, Free>;

Aligned aligned_tile() {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(static_cast<size_t>(kPageBytes), kRawTileBytes));
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
  explicit Impl(const std::string& name) : path(name), file(::open(name.c_str(), O_WRONLY | O_CLOEXEC)) {
    if (file.value < 0) fail();
  }
  [[noreturn]] void fail() const { throw RunTimeError(fmt::format("cannot write {}: {}", path, std::strerror(errno))); }
  void put(const std::byte* data, int64_t size, int64_t offset) const {
    while (size > 0) {
      const ssize_t written = ::pwrite(file.value, data, static_cast<size_t>(size), offset);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail();
      data += written;
      offset += written;
      size -= written;
    }
  }
  std::string path;
  Descriptor file;
};

RawWriter::RawWriter(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
RawWriter::~RawWriter() = default;

void RawWriter::write(int64_t offset, const void* data, int64_t size, Checksum& checksum) {
  const auto* bytes = static_cast<const std::byte*>(data);
  for (int64_t done = 0; done < size; done += kRawTileBytes) {
    const int64_t tile = std::min(kRawTileBytes, size - done);
    for (int64_t at = 0; at < tile; at += kCacheBytes) {
      const int64_t part = std::min(kCacheBytes, tile - at);
      checksum.add(bytes + done + at, static_cast<size_t>(part));
      impl_->put(bytes + done + at, part, offset + done + at);
    }
    // The disk begins at once: the flush at the end has little left. A hint, which a file system may not take.
    if (tile >= kCacheBytes) ::sync_file_range(impl_->file.value, offset + done, tile, SYNC_FILE_RANGE_WRITE);
  }
}

/// A read that began; each has a tile of its own.
struct Transfer {
  Aligned tile = aligned_tile();
  std::future<int64_t> running;
};

struct RawReader::Impl {
  Impl(const std::string& name, ReadFrom source)
      : path(name),
        file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | (source == ReadFrom::Disk ? O_DIRECT : 0))),
        // What the page cache holds is there at once; a disk is fast only with several transfers under way.
        launch(source == ReadFrom::Disk ? std::launch::async : std::launch::deferred) {
    if (file.value < 0 && errno == EINVAL) file.value = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (file.value < 0) throw RunTimeError(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
    for (size_t i = 0; i < kTilesUnderWay; ++i) begin(i);
  }
  ~Impl() {
    for (Transfer& transfer : transfers) {
      if (launch == std::launch::async && transfer.running.valid()) transfer.running.wait();
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void begin(size_t tile) {
    Transfer& transfer = transfers[tile % kTilesUnderWay];
    const int64_t offset = static_cast<int64_t>(tile) * kRawTileBytes;
    transfer.running =
        std::async(std::launch::async, [this, memory = transfer.tile.get(), offset] { return fill(memory, offset); });
  }

  /// Bytes read; fewer than a tile at the end of the file.
  int64_t fill(std::byte* memory, int64_t offset) const {
    int64_t done = 0;
    while (done < kRawTileBytes) {
      const auto rest = static_cast<size_t>(kRawTileBytes - done);
      const ssize_t count = ::pread(file.value, memory + done, rest, offset + done);
      if (count == 0) break;
      if (count > 0) {
        done += count;
        continue;
      }
      if (errno == EINTR) continue;
      const int error = errno;
      const int flags = ::fcntl(file.value, F_GETFL);
      if (error == EINVAL && (flags & O_DIRECT) != 0) {
        // Refused here, or the end of the last transfer was inside a block.
        ::fcntl(file.value, F_SETFL, flags & ~O_DIRECT);
        continue;
      }
      throw RunTimeError(fmt::format("cannot read {}: {}", path, std::strerror(error)));
    }
    return done;
  }

  std::string path;
  Descriptor file;
  std::launch launch;
  std::array<Transfer, kTilesUnderWay> transfers;
  size_t tiles = 0;  ///< given out so far
  bool ended = false;
};

RawReader::RawReader(const std::string& path, ReadFrom source) : impl_(std::make_unique<Impl>(path, source)) {}
RawReader::~RawReader() = default;

RawReader::Tile RawReader::next() {
  Impl& r = *impl_;
  if (r.ended) return {};
  // The caller is done with the tile before.
  if (r.tiles > 0) r.begin(r.tiles - 1 + kTilesUnderWay);
  Transfer& transfer = r.transfers[r.tiles++ % kTilesUnderWay];
  const int64_t size = transfer.running.get();
  r.ended = size < kRawTileBytes;
  return {transfer.tile.get(), size};
}

}  // namespace triax::io

// Values to and from the disk past the page cache: on local disks several times faster than through it, and what is
// read back comes from the disk. Where a file system has no direct transfers, ordinary ones are made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "io/checkpoint/checksum.h"

namespace triax::io {

/// Offsets of datasets that are to be written directly are multiples of this.
inline constexpr int64_t kDirectAlignment = 4096;

/// Writes ranges of an existing file; others may write other ranges of it by ordinary means.
class RawWriter {
 public:
  /// Throws RunTimeError.
  explicit RawWriter(const std::string& path);
  ~RawWriter();
  RawWriter(const RawWriter&) = delete;
  RawWriter& operator=(const RawWriter&) = delete;
  /// Whole blocks at an aligned offset go directly, the rest through the page cache. `checksum` takes the bytes while
  /// they are in the processor's cache. Throws RunTimeError with the system's words.
  void write(int64_t offset, const void* data, int64_t size_bytes, Checksum& checksum);

 private:
  struct Impl;
  void put_ordinary(int64_t offset, const std::byte* data, int64_t size);
  std::unique_ptr<Impl> impl_;
};

/// Reads a file from its beginning, tile by tile.
class RawReader {
 public:
  explicit RawReader(const std::string& path);
  ~RawReader();
  RawReader(const RawReader&) = delete;
  RawReader& operator=(const RawReader&) = delete;
  struct Tile {
    const std::byte* data = nullptr;
    int64_t size_bytes = 0;
  };
  /// Valid until the next call; empty at the end of the file. Throws RunTimeError.
  Tile next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace triax::io

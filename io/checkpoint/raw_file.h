// Values to and from the disk beside HDF5, in steps that keep the disk and the processor busy at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "io/checkpoint/checksum.h"

namespace triax::io {

/// Larger datasets begin at multiples of this, so that no page of theirs is written twice.
inline constexpr int64_t kPageBytes = 4096;

/// Writes ranges of an existing file; others may write other ranges of it by ordinary means.
class RawWriter {
 public:
  /// Throws RunTimeError.
  explicit RawWriter(const std::string& path);
  ~RawWriter();
  RawWriter(const RawWriter&) = delete;
  RawWriter& operator=(const RawWriter&) = delete;
  /// Through the page cache; the disk begins with each step at once. `checksum` takes the bytes while they are in the
  /// processor's cache. Throws RunTimeError with the system's words.
  void write(int64_t offset, const void* data, int64_t size_bytes, Checksum& checksum);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads a file from its beginning, tile by tile; those that come from the disk are read ahead on threads. Where a file
/// system has no direct transfers, ordinary ones are made.
class RawReader {
 public:
  RawReader(const std::string& path, ReadFrom source);
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

// Checksums of checkpoint files: XXH3 (xxhash), 64 bits for the values of one dataset, 128 bits for a whole file. The
// latter are those of the tool `xxh128sum`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace triax::io {

/// Bytes that stay in a core's cache from one use of them to the next.
inline constexpr int64_t kCacheBytes = int64_t{128} << 10;

/// 64-bit XXH3 of bytes that come in parts.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void add(const void* data, size_t size_bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

uint64_t checksum_of(const void* data, size_t size_bytes);
/// 16 hex digits.
std::string checksum_text(uint64_t checksum);

/// Bytes [offset, offset + size) of a file.
struct FileRange {
  int64_t offset = 0, size = 0;
};
struct FileChecksums {
  int64_t size_bytes = 0;
  std::string whole;             ///< 128-bit XXH3, 32 hex digits
  std::vector<uint64_t> ranges;  ///< 64-bit XXH3 of each range asked for
};
/// From the disk past the page cache, or what the system holds of it.
enum class ReadFrom { Disk, System };
/// Reads the file once. `ranges` ascend and do not overlap. Throws RunTimeError: unreadable, or shorter
/// than a range.
FileChecksums checksums_of_file(const std::string& path, const std::vector<FileRange>& ranges, ReadFrom source);

}  // namespace triax::io

#include "io/checkpoint/checksum.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "io/checkpoint/raw_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace triax::io {

struct Checksum::State {
  XXH3_state_t xxh;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;
void Checksum::add(const void* data, size_t size_bytes) { XXH3_64bits_update(&state_->xxh, data, size_bytes); }
uint64_t Checksum::value() const { return XXH3_64bits_digest(&state_->xxh); }

uint64_t checksum_of(const void* data, size_t size_bytes) { return XXH3_64bits(data, size_bytes); }

std::string checksum_text(uint64_t checksum) { return fmt::format("{:016x}", checksum); }

FileChecksums checksums_of_file(const std::string& path, const std::vector<FileRange>& ranges, ReadFrom source) {
  RawReader file(path, source);
  XXH3_state_t* state = XXH3_createState();
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> owner(state, XXH3_freeState);
  XXH3_128bits_reset(state);
  FileChecksums sums;
  size_t next = 0;
  Checksum range;
  int64_t at = 0;
  for (RawReader::Tile tile = file.next(); tile.size_bytes > 0; tile = file.next()) {
    for (int64_t begin = 0; begin < tile.size_bytes; begin += kCacheBytes) {  // for both sums
      const std::byte* bytes = tile.data + begin;
      const int64_t count = std::min(kCacheBytes, tile.size_bytes - begin);
      XXH3_128bits_update(state, bytes, static_cast<size_t>(count));
      while (next < ranges.size() && ranges[next].offset < at + count) {
        const FileRange& r = ranges[next];
        const int64_t from = std::max(r.offset, at);
        const int64_t to = std::min(r.offset + r.size, at + count);
        if (to > from) range.add(bytes + (from - at), static_cast<size_t>(to - from));
        if (r.offset + r.size > at + count) break;
        sums.ranges.push_back(range.value());
        range = Checksum();
        ++next;
      }
      at += count;
    }
  }
  if (next < ranges.size()) {
    throw RunTimeError(
        fmt::format("{}: ends after {} bytes, {} are needed", path, at, ranges.back().offset + ranges.back().size));
  }
  const XXH128_hash_t digest = XXH3_128bits_digest(state);
  sums.size_bytes = at;
  sums.whole = fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
  return sums;
}

}  // namespace triax::io

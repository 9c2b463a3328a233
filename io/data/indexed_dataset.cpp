#include "io/data/indexed_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"

namespace triax::io {

namespace {

constexpr std::array<unsigned char, 9> kIndexMagic{'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr int64_t kHeaderBytes = 34;
// Below this a read touches a page or two, which costs less than asking for them.
constexpr int64_t kPrefetchBytes = 4096;

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
T element(const std::byte* array, int64_t i) {
  return load<T>(array + i * static_cast<int64_t>(sizeof(T)));
}

}  // namespace

IndexedDataset::IndexedDataset(const std::string& prefix) : prefix_(prefix) {
  idx_ = MappedFile(prefix + ".idx");
  bin_ = MappedFile(prefix + ".bin");
  bin_.advise_random();
  check_header();
}

void IndexedDataset::fail(const std::string& what, const std::string& remedy) const {
  throw RunTimeError(fmt::format("{}.idx: {}; {}", prefix_, what, remedy));
}

void IndexedDataset::check_header() {
  const char* rebuild = "the file is damaged or no Megatron index: build it again ('triax data build')";
  const auto size = static_cast<int64_t>(idx_.size());
  if (size < kHeaderBytes) fail(fmt::format("{} bytes are too short for a header of {}", size, kHeaderBytes), rebuild);
  const std::byte* header = idx_.data();
  if (std::memcmp(header, kIndexMagic.data(), kIndexMagic.size()) != 0) fail("does not begin with MMIDIDX", rebuild);
  const auto version = load<uint64_t>(header + 9);
  if (version != 1) fail(fmt::format("version {} is not 1", version), "only version 1 is known");
  const auto code = load<uint8_t>(header + 17);
  if (code < 1 || code > 8) fail(fmt::format("type code {} is not in 1..8", code), rebuild);
  type_ = static_cast<TokenType>(code);
  if (type_ == TokenType::Float32 || type_ == TokenType::Float64) {
    fail(fmt::format("type {} cannot hold tokens", name_of(type_)), "build it again with an integer type");
  }
  const auto sequences = load<uint64_t>(header + 18);
  const auto bounds = load<uint64_t>(header + 26);
  const auto room = static_cast<uint64_t>(size - kHeaderBytes);
  if (sequences > room / 12 || bounds > room / 8 || 12 * sequences + 8 * bounds > room) {
    fail(fmt::format("{} bytes are too short for {} sequences and {} document bounds", size, sequences, bounds),
         "the file is cut: copy or build it again");
  }
  sequences_ = static_cast<int64_t>(sequences);
  document_bounds_ = static_cast<int64_t>(bounds);
  const int64_t expected = kHeaderBytes + 12 * sequences_ + 8 * document_bounds_;
  if (size == expected + sequences_ && sequences_ > 0) {
    fail("has a modes array (multimodal data)", "only text is supported");
  }
  if (size != expected) fail(fmt::format("has {} bytes, its header says {}", size, expected), rebuild);
  lengths_ = header + kHeaderBytes;
  offsets_ = lengths_ + 4 * sequences_;
  documents_ = offsets_ + 8 * sequences_;
  if (document_bounds_ < 1 || document_begin(0) != 0 || document_begin(document_bounds_ - 1) != sequences_) {
    fail(fmt::format("document bounds do not run from 0 to {} sequences", sequences_), rebuild);
  }
  const int64_t item = size_of(type_);
  int64_t end = 0;
  if (sequences_ > 0) {
    const int64_t last = sequences_ - 1;
    if (byte_offset(0) != 0 || length(last) < 0 || byte_offset(last) < 0)
      fail("byte offsets are out of range", rebuild);
    end = byte_offset(last) + item * length(last);
  }
  if (end != bin_bytes()) {
    fail(fmt::format("says that {}.bin has {} bytes ({} of {} each), it has {}", prefix_, end, end / item,
                     name_of(type_), bin_bytes()),
         end > bin_bytes() ? "the .bin is cut: copy or build it again" : "the two files do not belong together");
  }
  tokens_ = end / item;
}

int32_t IndexedDataset::length(int64_t sequence) const { return element<int32_t>(lengths_, sequence); }
int64_t IndexedDataset::byte_offset(int64_t sequence) const { return element<int64_t>(offsets_, sequence); }
int64_t IndexedDataset::document_begin(int64_t document) const { return element<int64_t>(documents_, document); }

int64_t IndexedDataset::document_of(int64_t sequence) const {
  int64_t low = 0;
  int64_t high = documents();
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (document_begin(middle) <= sequence ? low : high) = middle;
  }
  return low;
}

template <class T>
void IndexedDataset::read_as(int64_t sequence, const std::byte* from, std::span<int32_t> out,
                             int64_t vocab_size) const {
  const auto limit = vocab_size > 0 ? vocab_size : int64_t{std::numeric_limits<int32_t>::max()};
  bool good = true;
  for (size_t i = 0; i < out.size(); ++i) {
    const T value = load<T>(from + i * sizeof(T));
    // As unsigned 64 bits a negative value is large, so one comparison serves both ends.
    good &= static_cast<uint64_t>(static_cast<int64_t>(value)) < static_cast<uint64_t>(limit);
    out[i] = static_cast<int32_t>(value);
  }
  if (good) return;
  size_t bad = 0;
  while (static_cast<uint64_t>(static_cast<int64_t>(load<T>(from + bad * sizeof(T)))) < static_cast<uint64_t>(limit)) {
    ++bad;
  }
  const int64_t position =
      (from - bin_.data() - byte_offset(sequence)) / static_cast<int64_t>(sizeof(T)) + static_cast<int64_t>(bad);
  throw RunTimeError(fmt::format(
      "{}.bin: document {} (sequence {}) has token {} at position {}, outside the vocabulary of {}; the data "
      "was made with another tokenizer, or is damaged: give that tokenizer, or build the data again",
      prefix_, document_of(sequence), sequence, static_cast<int64_t>(load<T>(from + bad * sizeof(T))), position,
      limit));
}

void IndexedDataset::read(int64_t sequence, int64_t offset, std::span<int32_t> out, int64_t vocab_size) const {
  ensure(sequence >= 0 && sequence < sequences_, "IndexedDataset::read: no such sequence");
  const int64_t item = size_of(type_);
  const int64_t begin = byte_offset(sequence);
  const int64_t tokens = length(sequence);
  const auto count = static_cast<int64_t>(out.size());
  ensure(offset >= 0 && count <= tokens - offset, "IndexedDataset::read: past the end of the sequence");
  if (begin < 0 || begin > bin_bytes() || tokens * item > bin_bytes() - begin) {
    fail(fmt::format("sequence {} lies outside the .bin", sequence), "the index is damaged: build the data again");
  }
  const std::byte* from = bin_.data() + begin + offset * item;
  if (count * item > kPrefetchBytes) bin_.will_need(from, static_cast<size_t>(count * item));
  switch (type_) {
    case TokenType::UInt8:
      return read_as<uint8_t>(sequence, from, out, vocab_size);
    case TokenType::Int8:
      return read_as<int8_t>(sequence, from, out, vocab_size);
    case TokenType::Int16:
      return read_as<int16_t>(sequence, from, out, vocab_size);
    case TokenType::UInt16:
      return read_as<uint16_t>(sequence, from, out, vocab_size);
    case TokenType::Int32:
      return read_as<int32_t>(sequence, from, out, vocab_size);
    case TokenType::Int64:
      return read_as<int64_t>(sequence, from, out, vocab_size);
    case TokenType::Float32:
    case TokenType::Float64:
      break;
  }
  ensure(false, "IndexedDataset::read: floating tokens");
}

void IndexedDataset::check_all(int64_t vocab_size) const {
  const char* rebuild = "the index is damaged: build the data again";
  const int64_t item = size_of(type_);
  int64_t end = 0;
  for (int64_t i = 0; i < sequences_; ++i) {
    if (length(i) < 0) fail(fmt::format("sequence {} has {} tokens", i, length(i)), rebuild);
    if (byte_offset(i) != end) {
      fail(fmt::format("sequence {} begins at byte {}, the one before ends at {}", i, byte_offset(i), end), rebuild);
    }
    end += item * length(i);
  }
  for (int64_t d = 0; d < documents(); ++d) {
    if (document_begin(d + 1) < document_begin(d)) {
      fail(fmt::format("document {} ends at sequence {}, before its begin {}", d, document_begin(d + 1),
                       document_begin(d)),
           rebuild);
    }
  }
  bin_.advise_sequential();
  std::vector<int32_t> tokens(size_t{1} << 16);
  for (int64_t i = 0; i < sequences_; ++i) {
    for (int64_t offset = 0; offset < length(i);) {
      const auto count = std::min<int64_t>(length(i) - offset, static_cast<int64_t>(tokens.size()));
      read(i, offset, std::span(tokens).first(static_cast<size_t>(count)), vocab_size);
      offset += count;
    }
  }
}

uint64_t IndexedDataset::fingerprint() const {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&hash](uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ ((word >> shift) & 0xff)) * 0x100000001b3u;
  };
  add(static_cast<uint64_t>(type_));
  add(static_cast<uint64_t>(sequences_));
  add(static_cast<uint64_t>(document_bounds_));
  add(static_cast<uint64_t>(tokens_));
  const int64_t probes = std::min<int64_t>(sequences_, 65536);
  for (int64_t p = 0; p < probes; ++p) {
    // 128 bits: the product may pass 2^63 for 10^14 sequences and more.
    const auto i = static_cast<int64_t>(static_cast<unsigned __int128>(p) * static_cast<uint64_t>(sequences_) /
                                        static_cast<uint64_t>(probes));
    add(static_cast<uint64_t>(byte_offset(i)));
    add(static_cast<uint64_t>(length(i)));
  }
  return hash;
}

}  // namespace triax::io

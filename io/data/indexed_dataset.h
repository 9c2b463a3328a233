// Reads Megatron's indexed dataset: `prefix.bin` (tokens back to back) and `prefix.idx` (lengths, byte offsets,
// documents).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "io/data/mapped_file.h"
#include "io/data/token_type.h"

namespace triax::io {

/// Both files are mapped, nothing is copied: opening costs the same for a thousand and for ten billion tokens.
/// All offsets and counts are 64-bit. Reading is thread-safe. Move-only.
///
/// `.idx`, little-endian, unaligned: "MMIDIDX\0\0" (9), u64 version 1, u8 type code, u64 S sequences, u64 D document
/// bounds, i32 length[S] (tokens), i64 byte_offset[S], i64 document[D] (0, then cumulative sequences; the last is S).
class IndexedDataset {
 public:
  /// `prefix` is the path without `.bin`/`.idx`. Checks magic, version, code, both file sizes and the ends of the
  /// arrays; throws RunTimeError that names file, what is wrong and the remedy.
  explicit IndexedDataset(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  /// S. Without sentence splitting one sequence is one document.
  int64_t sequences() const { return sequences_; }
  /// Documents, D - 1; documents without any sequence count.
  int64_t documents() const { return document_bounds_ - 1; }
  /// Tokens of the whole `.bin`.
  int64_t tokens() const { return tokens_; }
  int64_t bin_bytes() const { return static_cast<int64_t>(bin_.size()); }
  int64_t idx_bytes() const { return static_cast<int64_t>(idx_.size()); }

  /// Tokens of a sequence.
  int32_t length(int64_t sequence) const;
  /// Byte offset in `.bin`.
  int64_t byte_offset(int64_t sequence) const;
  /// Sequences [document_begin(d), document_begin(d + 1)) make document d; d <= documents().
  int64_t document_begin(int64_t document) const;
  /// The document that holds a sequence (binary search).
  int64_t document_of(int64_t sequence) const;

  /// The whole `.bin`.
  std::span<const std::byte> raw_tokens() const {
    bin_.advise_sequential();
    return {bin_.data(), bin_.size()};
  }

  /// out = tokens [offset, offset + out.size()) of a sequence. Throws RunTimeError, which names prefix and document,
  /// for a token outside [0, vocab_size); vocab_size 0 checks against int32 only.
  void read(int64_t sequence, int64_t offset, std::span<int32_t> out, int64_t vocab_size = 0) const;

  /// Checks every entry of the index, and every token against vocab_size when it is not 0. Throws RunTimeError with the
  /// first fault.
  void check_all(int64_t vocab_size) const;

  /// 64-bit fingerprint of header and up to 65536 evenly spaced entries; byte offsets are prefix sums of the lengths,
  /// so a rebuilt file differs even when its counts are the same.
  uint64_t fingerprint() const;

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& remedy) const;
  void check_header();
  template <class T>
  void read_as(int64_t sequence, const std::byte* from, std::span<int32_t> out, int64_t vocab_size) const;

  std::string prefix_;
  MappedFile idx_;
  MappedFile bin_;
  TokenType type_ = TokenType::UInt16;
  int64_t sequences_ = 0;
  int64_t document_bounds_ = 0;
  int64_t tokens_ = 0;
  const std::byte* lengths_ = nullptr;    // i32 [S], unaligned
  const std::byte* offsets_ = nullptr;    // i64 [S], unaligned
  const std::byte* documents_ = nullptr;  // i64 [D], unaligned
};

}  // namespace triax::io

// Writes Megatron's indexed dataset (`prefix.bin` and `prefix.idx`), streaming.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/data/atomic_file.h"
#include "io/data/indexed_dataset.h"
#include "io/data/token_type.h"

namespace triax::io {

/// Tokens go to a temporary file as they come (12 bytes of memory per document); finish() flushes both files to disk,
/// removes an old index and renames, so that a reader never sees an index beside other tokens. Without finish() nothing
/// remains.
class IndexedDatasetWriter {
 public:
  /// Throws RunTimeError when the directory cannot be written.
  IndexedDatasetWriter(const std::string& prefix, TokenType type);

  /// One document of one sequence; no tokens: a document without sequences, as Megatron's builder.
  void add_document(std::span<const int32_t> tokens);
  /// One document of several sequences.
  void add_document(std::span<const int32_t> tokens, std::span<const int32_t> sequence_lengths);
  /// All documents of another dataset of the same type: its `.bin` is copied byte for byte.
  void append(const IndexedDataset& other);
  /// Writes the index, makes both files durable and visible.
  void finish();

  int64_t documents() const { return static_cast<int64_t>(documents_.size()) - 1; }
  int64_t tokens() const { return bytes_ / size_of(type_); }

 private:
  std::string prefix_;
  TokenType type_;
  AtomicFile bin_;
  AtomicFile idx_;
  int64_t bytes_ = 0;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> documents_{0};
  std::vector<std::byte> packed_;
};

}  // namespace triax::io

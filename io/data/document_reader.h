// Cuts inputs into documents: a file each, pieces between separators, or lines of JSON.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/data/byte_source.h"

namespace triax::io {

enum class InputFormat : uint8_t { Auto, Text, Jsonl };

/// About a mebibyte of consecutive documents of one input, the unit of work of the tokenizing threads.
struct DocumentBatch {
  int64_t number = 0;  ///< 0, 1, ... over all inputs
  std::string source;
  InputFormat format = InputFormat::Text;
  std::string bytes;           ///< documents one after the other
  std::vector<size_t> ends;    ///< end of each document in bytes
  std::vector<int64_t> lines;  ///< Jsonl: the line of each document, from 1
  std::string_view document(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(bytes).substr(begin, ends[i] - begin);
  }
};

/// Reads inputs in order, each once. Text: the whole input is one document, or with a separator the pieces between its
/// occurrences (a piece of white space only is dropped). Jsonl: every line that is not blank. Auto: by the name without
/// .gz and .zst (.jsonl, .json, .ndjson are Jsonl), and for standard input by whether it begins with '{'.
class DocumentReader {
 public:
  struct Options {
    std::vector<std::string> inputs;
    InputFormat format = InputFormat::Auto;
    std::string separator;  ///< Text only; empty: none
    size_t batch_bytes = size_t{1} << 20;
  };
  explicit DocumentReader(Options options);

  /// nullopt after the last document. Throws RunTimeError for an input that cannot be read.
  std::optional<DocumentBatch> next();

 private:
  void open_next();
  bool read_more();
  std::optional<size_t> find_separator();
  void take(DocumentBatch& batch, size_t length, size_t separator_length);

  Options options_;
  size_t next_input_ = 0;
  std::unique_ptr<ByteSource> source_;
  InputFormat format_ = InputFormat::Text;
  std::string separator_;
  std::string buffer_;
  size_t begin_ = 0;    // of the current document in buffer_
  size_t scanned_ = 0;  // no separator begins before this
  int64_t line_ = 0;
  int64_t batches_ = 0;
};

}  // namespace triax::io

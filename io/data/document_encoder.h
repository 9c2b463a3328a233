// From a batch of documents to tokens: picks the texts out of JSON, tokenizes, appends the end-of-document token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/data/document_reader.h"
#include "io/tokenizer/tokenizer.h"

namespace triax::io {

struct EncoderOptions {
  std::vector<std::string> json_keys{"text"};  ///< one output each; plain text goes to the first
  bool append_eod = false;
  bool skip_bad_lines = false;  ///< count malformed lines instead of failing
};

/// Documents of one JSON key, laid as IndexedDatasetWriter takes them.
struct EncodedDocuments {
  std::vector<int32_t> tokens;
  std::vector<int32_t> sequence_lengths;
  std::vector<size_t> sequences;  ///< number of sequences of each document
  int64_t text_bytes = 0;
};

struct EncodedBatch {
  int64_t number = 0;
  int64_t input_bytes = 0;
  int64_t bad_lines = 0;
  std::string first_bad_line;          ///< "file line 7: what"
  std::vector<EncodedDocuments> keys;  ///< one per JSON key
};

/// Thread-safe: only reads the tokenizer. Throws RunTimeError for a malformed line with file and line number.
/// A key's value is a string, or a list of strings that become the sequences of one document. EOD goes to the end of
/// the document, an empty one gets none (as preprocess_data.py).
EncodedBatch encode_documents(const DocumentBatch& batch, const EncoderOptions& options, const Tokenizer& tokenizer);

}  // namespace triax::io

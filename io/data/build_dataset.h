// Text in, `.bin/.idx` out: a reading thread, tokenizing threads, and a writer that keeps the order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/data/document_encoder.h"
#include "io/data/document_reader.h"
#include "io/tokenizer/tokenizer.h"

namespace triax::io {

struct BuildRequest {
  DocumentReader::Options input;
  EncoderOptions encoder;
  TokenizerOptions tokenizer;  ///< kept in the description
  std::string output_prefix;   ///< files are `<output_prefix>_<key>_document.bin`, `.idx`, `.json`
  bool overwrite = false;
  int workers = 1;                ///< tokenizing threads
  int64_t log_interval = 100000;  ///< documents; 0: no progress lines
};

struct BuildReport {
  std::vector<std::string> prefixes;  ///< one per key, as --data-path takes them
  int64_t documents = 0;              ///< of the first key
  int64_t tokens = 0;                 ///< over all keys
  int64_t text_bytes = 0;
  int64_t input_bytes = 0;
  int64_t bad_lines = 0;
  double seconds = 0;
};

/// The output does not depend on the number of workers. Refuses (ConfigError) to replace files unless `overwrite`; on
/// any error nothing becomes visible.
BuildReport build_dataset(const BuildRequest& request, const Tokenizer& tokenizer);

}  // namespace triax::io

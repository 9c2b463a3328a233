// `<prefix>.json`: what made a dataset, so that training and sampling can check that they use the same tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/data/token_type.h"
#include "io/tokenizer/tokenizer.h"

namespace triax::io {

struct DatasetDescription {
  TokenizerOptions tokenizer;  ///< how to open it; paths are kept relative to the description's directory
  std::string tokenizer_hash;  ///< Tokenizer::hash()
  int64_t vocab_size = 0;      ///< before padding
  std::optional<int32_t> eod;
  bool eod_appended = false;
  TokenType token_type = TokenType::UInt16;
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t text_bytes = 0;  ///< of the texts, without EOD: tokens to bits per byte
  std::vector<std::string> sources;
};

/// Writes `<prefix>.json`, complete or not at all.
void write_description(const std::string& prefix, const DatasetDescription& description);

/// nullopt when there is no `<prefix>.json` (data made by another program). Paths come back usable from here. Throws
/// RunTimeError for a file that cannot be understood.
std::optional<DatasetDescription> read_description(const std::string& prefix);

/// Throws ConfigError unless the tokenizer has the hash of the one that made the data.
void check_tokenizer(const std::string& prefix, const DatasetDescription& description, const Tokenizer& tokenizer);

}  // namespace triax::io

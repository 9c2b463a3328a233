// A tokenizer's files under the names that Hugging Face's libraries look for.
#pragma once

#include <string>
#include <vector>

#include "io/tokenizer/tokenizer.h"

namespace triax::io {

struct CopiedTokenizer {
  std::vector<std::string> files;  ///< names in the target directory
  TokenizerOptions options;        ///< opens the copies; type is empty when there is no tokenizer
};

/// Copies what `options` opens into `directory`: vocab.json and merges.txt, tokenizer.json (with tokenizer_config.json
/// and special_tokens_map.json beside it), tokenizer.model. Tokenizers without files give none. Throws ConfigError for
/// a file that is gone and for a type whose file transformers does not read (TikTokenizer).
CopiedTokenizer export_tokenizer(const TokenizerOptions& options, const std::string& directory);

/// Copies every tokenizer file of a model's directory; the tokenizer is the first of tokenizer.json, vocab.json with
/// merges.txt, tokenizer.model.
CopiedTokenizer import_tokenizer(const std::string& from, const std::string& to);

}  // namespace triax::io

// One maker per tokenizer type, called by make_tokenizer() alone, and what they share.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "io/tokenizer/bpe_tokenizer.h"
#include "io/tokenizer/tokenizer.h"

namespace triax::io {

/// Names the file of types that have one.
inline constexpr const char* kModelOption = "--tokenizer-model";
/// The one special token of GPT-2's vocabulary.
inline constexpr const char* kEndOfText = "<|endoftext|>";

std::unique_ptr<Tokenizer> make_byte_level_tokenizer(const TokenizerOptions& options);
std::unique_ptr<Tokenizer> make_null_tokenizer(const TokenizerOptions& options);
std::unique_ptr<Tokenizer> make_gpt2_bpe_tokenizer(const TokenizerOptions& options);
std::unique_ptr<Tokenizer> make_hugging_face_tokenizer(const TokenizerOptions& options);
std::unique_ptr<Tokenizer> make_tik_tokenizer(const TokenizerOptions& options);
std::unique_ptr<Tokenizer> make_sentence_piece_tokenizer(const TokenizerOptions& options);

/// Throws ConfigError "OPTION 'value': rule; remedy".
[[noreturn]] void refuse(std::string_view option, std::string_view value, std::string_view rule,
                         std::string_view remedy);

/// Throws ConfigError unless `path` is a file that can be read; `what` says what the option wants.
std::string read_whole_file(std::string_view option, const std::string& path, std::string_view what);

/// As read_whole_file, parsed.
nlohmann::json read_json_file(std::string_view option, const std::string& path, std::string_view what);

/// Builds the tokenizer; turns the reason that `spec` is unusable into a ConfigError about `option`'s file.
std::unique_ptr<Tokenizer> make_bpe(BpeSpec spec, std::string_view option, const std::string& path);

/// Fills `tokens` (bytes by id) from a JSON object {token: id} in the byte alphabet. Tokens with other characters leave
/// a hole. Throws std::invalid_argument for ids that are no integers in [0, 2^24), or given twice.
std::vector<std::string> read_vocabulary(const nlohmann::json& vocab);

/// Ids of one merge, given as its two tokens in the byte alphabet. Throws std::invalid_argument when one is unknown.
class MergeReader {
 public:
  explicit MergeReader(const nlohmann::json& vocab) : vocab_(vocab) {}
  std::pair<int32_t, int32_t> read(const std::string& left, const std::string& right) const;
  /// "left right", one blank between.
  std::pair<int32_t, int32_t> read(const std::string& line) const;

 private:
  const nlohmann::json& vocab_;
};

}  // namespace triax::io

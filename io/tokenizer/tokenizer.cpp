#include "io/tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/error.h"
#include "io/tokenizer/makers.h"
#include "io/tokenizer/utf8.h"

namespace triax::io {
namespace {

constexpr std::array<std::string_view, 8> kTokenizerTypes = {
    "ByteLevelTokenizer", "NullTokenizer",          "GPT2BPETokenizer", "HuggingFaceTokenizer",
    "TikTokenizer",       "SentencePieceTokenizer", "Llama2Tokenizer",  "GPTSentencePieceTokenizer",
};

}  // namespace

std::span<const std::string_view> tokenizer_types() { return kTokenizerTypes; }

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options) {
  const auto& type = options.type;
  if (type == "ByteLevelTokenizer") return make_byte_level_tokenizer(options);
  if (type == "NullTokenizer") return make_null_tokenizer(options);
  if (type == "GPT2BPETokenizer") return make_gpt2_bpe_tokenizer(options);
  if (type == "HuggingFaceTokenizer") return make_hugging_face_tokenizer(options);
  if (type == "TikTokenizer") return make_tik_tokenizer(options);
  if (type == "SentencePieceTokenizer" || type == "Llama2Tokenizer" || type == "GPTSentencePieceTokenizer") {
    return make_sentence_piece_tokenizer(options);
  }
  refuse("--tokenizer-type", type, type.empty() ? "a tokenizer must be named" : "there is no such tokenizer here",
         fmt::format("give one of {}", fmt::join(kTokenizerTypes, ", ")));
}

std::string Tokenizer::token_text(int32_t id) const {
  const std::string bytes = decode(std::span(&id, 1));
  std::string out;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const size_t length = utf8_length(rest);
    const auto first = static_cast<uint8_t>(rest[0]);
    if (length == 0 || first < 0x20 || first == 0x7F) {
      out += fmt::format("<0x{:02X}>", first);
      rest.remove_prefix(1);
    } else {
      out += rest.substr(0, length);
      rest.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace triax::io

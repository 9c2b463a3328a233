// Text to token ids and back, under Megatron-LM's tokenizer-type names. One factory makes them all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace triax::io {

/// What chooses a tokenizer; each field is the option of the same name in Megatron.
struct TokenizerOptions {
  std::string type = {};                ///< --tokenizer-type, see tokenizer_types()
  std::string model = {};               ///< --tokenizer-model: .model, tokenizer.json or its directory, tiktoken file
  std::string vocab_file = {};          ///< --vocab-file (GPT2BPETokenizer)
  std::string merge_file = {};          ///< --merge-file (GPT2BPETokenizer)
  int64_t vocab_size = 0;               ///< --vocab-size: NullTokenizer (required), ByteLevelTokenizer (0: 512),
                                        ///< TikTokenizer (0: the file, at most 2^17 with its specials)
  std::string tiktoken_pattern = "v2";  ///< --tiktoken-pattern v1|v2
  int64_t tiktoken_num_special_tokens = 1000;             ///< --tiktoken-num-special-tokens
  std::vector<std::string> tiktoken_special_tokens = {};  ///< --tiktoken-special-tokens; empty: Megatron's seven
};

/// A tokenizer is immutable after construction; every method may be called from many threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Megatron's name of the type, for example "GPT2BPETokenizer".
  virtual std::string type() const = 0;

  /// One more than the largest id, before padding for tensor parallelism.
  virtual int64_t vocab_size() const = 0;

  /// Appends the ids of `text` to `out`, never an EOD; a BOS only where a tokenizer.json's own post-processor adds one
  /// (Llama-3), as in Megatron. Bytes that are not UTF-8 are encoded, not refused.
  virtual void encode(std::string_view text, std::vector<int32_t>& out) const = 0;

  /// Ids to bytes; ids outside the vocabulary (padding rows) become U+FFFD. Ids that a model sampled may spell bytes
  /// that are not UTF-8: see valid_utf8() in io/tokenizer/utf8.h before printing.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  /// End of document, appended by `--append-eod`; nullopt when the model defines none.
  virtual std::optional<int32_t> eod() const = 0;

  /// Beginning of sequence; nullopt when the model defines none.
  virtual std::optional<int32_t> bos() const { return std::nullopt; }

  /// How one token reads in a listing: its text, bytes outside printable UTF-8 as <0xNN>.
  virtual std::string token_text(int32_t id) const;

  /// 16 lower-case hex digits over everything that decides the ids (vocabulary, merges, pattern, specials; not paths,
  /// not the order of keys in a file): equal hashes mean equal ids. Stored in <prefix>.json.
  virtual std::string hash() const = 0;

  /// Convenience over the appending form.
  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> ids;
    encode(text, ids);
    return ids;
  }
};

/// The names that make_tokenizer accepts.
std::span<const std::string_view> tokenizer_types();

/// Opens the tokenizer. Throws ConfigError for an unknown type, a missing option, a missing or garbled file and a
/// model that asks for something not implemented; the text names option, value, rule and remedy, all faults at once.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options);

}  // namespace triax::io

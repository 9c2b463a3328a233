// NullTokenizer: for measurements, no model needed. As Megatron's: a character is its code point modulo --vocab-size,
// the end of document is --vocab-size, and ids decode to numbers.
#include <fmt/format.h>

#include "io/tokenizer/content_hash.h"
#include "io/tokenizer/makers.h"
#include "io/tokenizer/utf8.h"

namespace triax::io {
namespace {

class NullTokenizer : public Tokenizer {
 public:
  explicit NullTokenizer(int64_t ids) : ids_(ids) {}

  std::string type() const override { return "NullTokenizer"; }
  int64_t vocab_size() const override { return ids_ + 1; }

  void encode(std::string_view text, std::vector<int32_t>& out) const override {
    constexpr char32_t kReplacement = 0xFFFD;
    while (!text.empty()) {
      const size_t length = utf8_length(text);
      const char32_t code = length == 0 ? kReplacement : utf8_decode(text, length);
      out.push_back(static_cast<int32_t>(code % ids_));
      text.remove_prefix(length == 0 ? 1 : length);
    }
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string out;
    for (const int32_t id : ids) {
      if (!out.empty()) out += ' ';
      out += std::to_string(id);
    }
    return out;
  }

  std::optional<int32_t> eod() const override { return static_cast<int32_t>(ids_); }

  std::string hash() const override {
    ContentHash hash;
    hash.add("code point modulo");
    hash.add(ids_);
    return hash.hex();
  }

 private:
  int64_t ids_;  // without the end of document
};

}  // namespace

std::unique_ptr<Tokenizer> make_null_tokenizer(const TokenizerOptions& options) {
  if (options.vocab_size < 1 || options.vocab_size >= INT32_MAX) {
    refuse("--vocab-size", std::to_string(options.vocab_size), "NullTokenizer needs it, in [1, 2^31-2]",
           "give for example --vocab-size 50256 (one more id is added for the end of document)");
  }
  return std::make_unique<NullTokenizer>(options.vocab_size);
}

}  // namespace triax::io

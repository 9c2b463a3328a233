// ByteLevelTokenizer: an id is a byte. Megatron's defaults: 512 ids, of which 256 are bytes, and end of document 0.
#include <fmt/format.h>

#include "io/tokenizer/content_hash.h"
#include "io/tokenizer/makers.h"

namespace triax::io {
namespace {

constexpr int64_t kBytes = 256;
constexpr int64_t kDefaultVocabulary = 512;
constexpr int32_t kEod = 0;  // the byte NUL, which no text has

class ByteLevelTokenizer : public Tokenizer {
 public:
  explicit ByteLevelTokenizer(int64_t size) : size_(size) {}

  std::string type() const override { return "ByteLevelTokenizer"; }
  int64_t vocab_size() const override { return size_; }

  void encode(std::string_view text, std::vector<int32_t>& out) const override {
    const size_t start = out.size();
    out.resize(start + text.size());
    int32_t* to = out.data() + start;
    for (size_t i = 0; i < text.size(); ++i) to[i] = static_cast<uint8_t>(text[i]);
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string out;
    for (const int32_t id : ids) {
      if (id >= 0 && id < kBytes) {
        out += static_cast<char>(id);
      } else {
        out += "\xEF\xBF\xBD";
      }
    }
    return out;
  }

  std::optional<int32_t> eod() const override { return kEod; }

  std::string hash() const override {
    ContentHash hash;
    hash.add("bytes");
    hash.add(size_);
    return hash.hex();
  }

 private:
  int64_t size_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_level_tokenizer(const TokenizerOptions& options) {
  const int64_t size = options.vocab_size == 0 ? kDefaultVocabulary : options.vocab_size;
  if (size < kBytes || size > INT32_MAX) {
    refuse("--vocab-size", std::to_string(size), "ByteLevelTokenizer needs 256 ids for the bytes, at most 2^31-1",
           "give 256 or more, or leave it out for 512");
  }
  return std::make_unique<ByteLevelTokenizer>(size);
}

}  // namespace triax::io

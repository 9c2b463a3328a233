// SentencePieceTokenizer, Llama2Tokenizer and GPTSentencePieceTokenizer: a .model file (Kudo & Richardson 2018, arXiv
// 1808.06226), read by libsentencepiece. All three encode alike and add no BOS; the end of document is the model's EOS.
#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "base/error.h"
#include "io/tokenizer/content_hash.h"
#include "io/tokenizer/makers.h"

namespace triax::io {
namespace {

std::optional<int32_t> defined(int id) { return id >= 0 ? std::optional<int32_t>(id) : std::nullopt; }

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const TokenizerOptions& options, std::string_view file) : type_(options.type) {
    const auto status = processor_.LoadFromSerializedProto(file);
    if (!status.ok()) {
      refuse("--tokenizer-model", options.model, fmt::format("is no SentencePiece model ({})", status.ToString()),
             "give a .model file, or another --tokenizer-type");
    }
    ContentHash hash;
    hash.add("sentencepiece");
    hash.add(file);
    hash_ = hash.hex();
  }

  std::string type() const override { return type_; }
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }

  void encode(std::string_view text, std::vector<int32_t>& out) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    if (!status.ok())
      throw ApiError("SentencePiece", "Encode", static_cast<int>(status.code()), status.ToString(), __FILE__, __LINE__);
    out.insert(out.end(), ids.begin(), ids.end());
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string out;
    std::vector<int> known;
    for (size_t i = 0; i <= ids.size(); ++i) {
      const bool is_known = i < ids.size() && ids[i] >= 0 && ids[i] < processor_.GetPieceSize();
      if (is_known) {
        known.push_back(ids[i]);
        continue;
      }
      out += decode_known(known);
      known.clear();
      if (i < ids.size()) out += "\xEF\xBF\xBD";
    }
    return out;
  }

  std::optional<int32_t> eod() const override { return defined(processor_.eos_id()); }
  std::optional<int32_t> bos() const override { return defined(processor_.bos_id()); }

  std::string token_text(int32_t id) const override {
    if (id < 0 || id >= processor_.GetPieceSize()) return "\xEF\xBF\xBD";
    return processor_.IdToPiece(id);
  }

  std::string hash() const override { return hash_; }

 private:
  std::string decode_known(const std::vector<int>& ids) const {
    std::string text;
    if (ids.empty()) return text;
    const auto status = processor_.Decode(ids, &text);
    if (!status.ok())
      throw ApiError("SentencePiece", "Decode", static_cast<int>(status.code()), status.ToString(), __FILE__, __LINE__);
    return text;
  }

  std::string type_;
  sentencepiece::SentencePieceProcessor processor_;
  std::string hash_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentence_piece_tokenizer(const TokenizerOptions& options) {
  const std::string file = read_whole_file("--tokenizer-model", options.model, "a SentencePiece .model file");
  return std::make_unique<SentencePieceTokenizer>(options, file);
}

}  // namespace triax::io

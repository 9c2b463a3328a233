// The tokenizer behind GPT2BPETokenizer, HuggingFaceTokenizer and TikTokenizer: special tokens, normal form, split
// pattern, byte-pair encoding, in this order. The three differ only in the files that fill a BpeSpec.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/tokenizer/bpe_model.h"
#include "io/tokenizer/normalizer.h"
#include "io/tokenizer/special_tokens.h"
#include "io/tokenizer/split_pattern.h"
#include "io/tokenizer/tokenizer.h"

namespace triax::io {

/// A token that is matched in the text as it stands.
struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool normalized = false;  ///< matched after the normal form was taken instead of before
};

/// All that decides the ids.
struct BpeSpec {
  std::string type;  ///< Megatron's name
  BpeVocabulary vocabulary;
  std::vector<AddedToken> added;
  NormalForm normal_form = NormalForm::None;
  bool add_prefix_space = false;  ///< a blank before every text (between special tokens) that does not start with one
  std::vector<SplitStage> stages;
  std::vector<int32_t> prefix, suffix;  ///< ids around every encoded text
  std::optional<int32_t> bos, eod;
};

class BpeTokenizer : public Tokenizer {
 public:
  /// Throws std::invalid_argument with the reason when the parts do not fit together.
  explicit BpeTokenizer(BpeSpec spec);

  std::string type() const override { return spec_.type; }
  int64_t vocab_size() const override { return static_cast<int64_t>(texts_.size()); }
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& out) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::optional<int32_t> eod() const override { return spec_.eod; }
  std::optional<int32_t> bos() const override { return spec_.bos; }
  std::string hash() const override { return hash_; }

 private:
  void encode_between_specials(std::string_view text, std::vector<int32_t>& out) const;
  void encode_valid(std::string_view text, std::vector<int32_t>& out) const;
  void encode_words(std::string_view text, std::vector<int32_t>& out) const;

  BpeSpec spec_;  // its vocabulary has moved into model_
  BpeModel model_;
  Splitter splitter_;
  SpecialTokenFinder raw_, normalized_;
  std::vector<std::string> texts_;  // bytes by id; empty: a hole
  std::string hash_;
};

}  // namespace triax::io

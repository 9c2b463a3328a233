#include "io/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <stdexcept>

#include "io/tokenizer/content_hash.h"
#include "io/tokenizer/utf8.h"

namespace triax::io {
namespace {

std::vector<std::pair<std::string, int32_t>> special_texts(const BpeSpec& spec, bool normalized) {
  std::vector<std::pair<std::string, int32_t>> out;
  std::string buffer;
  for (const auto& token : spec.added) {
    if (token.normalized != normalized) continue;
    out.emplace_back(normalized ? normalize(spec.normal_form, token.text, buffer) : token.text, token.id);
  }
  return out;
}

std::string hash_of(const BpeSpec& spec, const BpeVocabulary& vocabulary) {
  ContentHash hash;
  hash.add("byte-level BPE");
  for (const auto& token : vocabulary.tokens) hash.add(token);
  hash.add(vocabulary.order == MergeOrder::Rank);
  hash.add(vocabulary.whole_words_first);
  for (const auto& [left, right] : vocabulary.merges) {
    hash.add(left);
    hash.add(right);
  }
  auto added = spec.added;
  std::sort(added.begin(), added.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (const auto& token : added) {
    hash.add(token.text);
    hash.add(token.id);
    hash.add(token.normalized && spec.normal_form != NormalForm::None);
  }
  hash.add(normal_form_name(spec.normal_form));
  hash.add(spec.add_prefix_space);
  for (const auto& stage : spec.stages) {
    hash.add(stage.pattern);
    hash.add(stage.gaps == Gaps::Drop);
  }
  for (const auto& ids : {spec.prefix, spec.suffix}) {
    hash.add(static_cast<int64_t>(ids.size()));
    for (const int32_t id : ids) hash.add(id);
  }
  hash.add(spec.eod.value_or(-1));
  return hash.hex();
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeSpec spec)
    : spec_(std::move(spec)),
      model_(std::move(spec_.vocabulary)),
      splitter_(spec_.stages),
      raw_(special_texts(spec_, false)),
      normalized_(special_texts(spec_, true)),
      texts_(model_.vocabulary().tokens),
      hash_(hash_of(spec_, model_.vocabulary())) {
  for (const auto& token : spec_.added) {
    if (token.id < 0) throw std::invalid_argument("token '" + token.text + "' has a negative id");
    if (static_cast<size_t>(token.id) >= texts_.size()) texts_.resize(token.id + 1);
    texts_[token.id] = token.text;
  }
}

void BpeTokenizer::encode(std::string_view text, std::vector<int32_t>& out) const {
  out.insert(out.end(), spec_.prefix.begin(), spec_.prefix.end());
  for (size_t at = 0; at < text.size();) {
    const auto found = raw_.find(text, at);
    encode_between_specials(text.substr(at, found.begin - at), out);
    if (found.length > 0) out.push_back(found.id);
    at = found.begin + found.length;
  }
  out.insert(out.end(), spec_.suffix.begin(), spec_.suffix.end());
}

// Bytes that are no UTF-8 are words of their own: neither a normal form nor a pattern says anything of them.
void BpeTokenizer::encode_between_specials(std::string_view text, std::vector<int32_t>& out) const {
  while (!text.empty()) {
    const size_t valid = utf8_valid_prefix(text);
    if (valid > 0) encode_valid(text.substr(0, valid), out);
    text.remove_prefix(valid);
    size_t broken = 0;
    while (broken < text.size() && utf8_length(text.substr(broken)) == 0) ++broken;
    model_.encode(text.substr(0, broken), out);
    text.remove_prefix(broken);
  }
}

void BpeTokenizer::encode_valid(std::string_view text, std::vector<int32_t>& out) const {
  std::string buffer;
  text = normalize(spec_.normal_form, text, buffer);
  for (size_t at = 0; at < text.size();) {
    const auto found = normalized_.find(text, at);
    if (found.begin > at) encode_words(text.substr(at, found.begin - at), out);
    if (found.length > 0) out.push_back(found.id);
    at = found.begin + found.length;
  }
}

void BpeTokenizer::encode_words(std::string_view text, std::vector<int32_t>& out) const {
  std::string prefixed;
  if (spec_.add_prefix_space && text[0] != ' ') {
    prefixed.append(" ").append(text);
    text = prefixed;
  }
  splitter_.for_each_word(text, [&](std::string_view word) { model_.encode(word, out); });
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  for (const int32_t id : ids) {
    const bool known = id >= 0 && static_cast<size_t>(id) < texts_.size() && !texts_[id].empty();
    out += known ? std::string_view(texts_[id]) : "\xEF\xBF\xBD";
  }
  return out;
}

}  // namespace triax::io

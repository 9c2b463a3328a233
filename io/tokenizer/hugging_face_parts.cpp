#include "io/tokenizer/hugging_face_parts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "io/tokenizer/makers.h"

namespace triax::io {
namespace {

using nlohmann::json;

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw std::invalid_argument(fmt::format(format, std::forward<Args>(args)...));
}

bool is_set(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return false;
  if (it->is_boolean()) return it->get<bool>();
  if (it->is_string()) return !it->get<std::string>().empty();
  return !it->is_number() || it->get<double>() != 0;
}

std::string type_of(const json& object) { return object.value("type", std::string("(no type)")); }

/// The members of a Sequence, or the object alone; none for null.
std::vector<json> members(const json& object, const char* list) {
  if (object.is_null()) return {};
  if (!object.is_object()) fail("\"{}\" is not an object", list);
  if (type_of(object) != "Sequence") return {object};
  std::vector<json> out;
  for (const auto& member : object.at(list)) {
    for (auto& inner : members(member, list)) out.push_back(std::move(inner));
  }
  return out;
}

void add_merges(const json& model, BpeVocabulary& vocabulary) {
  const json& vocab = model.at("vocab");
  const MergeReader reader(vocab);
  for (const auto& merge : model.at("merges")) {
    if (merge.is_string()) {
      vocabulary.merges.push_back(reader.read(merge.get<std::string>()));
    } else if (merge.is_array() && merge.size() == 2) {  // since version 0.20 of the library
      vocabulary.merges.push_back(reader.read(merge[0].get<std::string>(), merge[1].get<std::string>()));
    } else {
      fail("the merge {} is not two tokens", merge.dump());
    }
  }
}

/// A literal string as a pattern.
std::string quote(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (static_cast<uint8_t>(c) < 0x80 && !std::isalnum(static_cast<uint8_t>(c))) out += '\\';
    out += c;
  }
  return out;
}

SplitStage read_split(const json& split) {
  const json& pattern = split.at("pattern");
  if (!pattern.contains("Regex") && !pattern.contains("String")) fail("Split has the pattern {}", pattern.dump());
  SplitStage stage;
  stage.pattern =
      pattern.contains("Regex") ? pattern["Regex"].get<std::string>() : quote(pattern["String"].get<std::string>());
  const std::string behavior = split.at("behavior").get<std::string>();
  const bool invert = is_set(split, "invert");
  if (behavior == "Removed" && invert) {
    stage.gaps = Gaps::Drop;
  } else if (behavior != "Isolated") {
    fail("pre_tokenizer Split with behavior '{}'{} is not done, only Isolated, and Removed with invert", behavior,
         invert ? " and invert" : "");
  }
  return stage;
}

}  // namespace

BpeVocabulary read_bpe_model(const json& model) {
  const std::string type = model.value("type", std::string("BPE"));
  if (type != "BPE") fail("the model type {} is not done, only BPE", type);
  if (is_set(model, "byte_fallback")) {
    fail("the model falls back to bytes (SentencePiece in another coat), which is not done from tokenizer.json");
  }
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    if (is_set(model, key)) fail("the model's {} {} is not done", key, model[key].dump());
  }
  BpeVocabulary vocabulary;
  vocabulary.tokens = read_vocabulary(model.at("vocab"));
  vocabulary.whole_words_first = is_set(model, "ignore_merges");
  add_merges(model, vocabulary);
  return vocabulary;
}

void read_normalizer(const json& normalizer, BpeSpec& spec) {
  for (const auto& member : members(normalizer, "normalizers")) {
    const std::string type = type_of(member);
    bool known = false;
    for (const auto form : {NormalForm::Nfc, NormalForm::Nfd, NormalForm::Nfkc, NormalForm::Nfkd}) {
      if (type != normal_form_name(form)) continue;
      if (spec.normal_form != NormalForm::None) fail("more than one normalizer is not done");
      spec.normal_form = form;
      known = true;
    }
    if (!known) fail("the normalizer {} is not done, only NFC, NFD, NFKC and NFKD", type);
  }
}

void read_pre_tokenizer(const json& pre_tokenizer, BpeSpec& spec) {
  const auto stages = members(pre_tokenizer, "pretokenizers");
  if (stages.empty() || type_of(stages.back()) != "ByteLevel") {
    fail("the pre_tokenizer does not end in ByteLevel, so this is no byte-level BPE");
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    const json& stage = stages[i];
    const std::string type = type_of(stage);
    if (type == "Split") {
      spec.stages.push_back(read_split(stage));
    } else if (type == "Digits") {
      spec.stages.push_back({is_set(stage, "individual_digits") ? R"(\p{N})" : R"(\p{N}+)", Gaps::Keep});
    } else if (type != "ByteLevel" || i + 1 < stages.size()) {
      fail("the pre_tokenizer {} is not done, only Split, Digits and a last ByteLevel", type);
    }
  }
  const json& last = stages.back();
  spec.add_prefix_space = last.value("add_prefix_space", true);
  if (spec.add_prefix_space && !spec.stages.empty()) fail("add_prefix_space after another pre_tokenizer is not done");
  if (last.value("use_regex", true)) spec.stages.push_back({std::string(gpt2_pattern()), Gaps::Keep});
}

void read_added_tokens(const json& added_tokens, BpeSpec& spec) {
  for (const auto& token : added_tokens) {
    const auto text = token.at("content").get<std::string>();
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      if (is_set(token, key)) fail("the added token '{}' has {}, which is not done", text, key);
    }
    const auto id = token.at("id").get<int64_t>();
    if (id < 0 || id >= 1 << 24) fail("the added token '{}' has the id {}", text, id);
    spec.added.push_back({text, static_cast<int32_t>(id), is_set(token, "normalized")});
  }
}

void read_post_processor(const json& post_processor, BpeSpec& spec) {
  for (const auto& member : members(post_processor, "processors")) {
    const std::string type = type_of(member);
    if (type == "ByteLevel") continue;  // moves offsets only
    if (type != "TemplateProcessing") fail("the post_processor {} is not done", type);
    bool seen_text = false;
    for (const auto& piece : member.at("single")) {
      if (piece.contains("Sequence")) {
        if (seen_text) fail("the post_processor repeats the text, which is not done");
        seen_text = true;
        continue;
      }
      const auto name = piece.at("SpecialToken").at("id").get<std::string>();
      auto& side = seen_text ? spec.suffix : spec.prefix;
      for (const auto& id : member.at("special_tokens").at(name).at("ids")) side.push_back(id.get<int32_t>());
    }
  }
}

}  // namespace triax::io

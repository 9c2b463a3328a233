// HuggingFaceTokenizer: a tokenizer.json of a byte-level BPE (GPT-2, Llama 3, Qwen 2, DeepSeek, ...). What the file
// asks for is done as the Hugging Face library does it, or refused by name.
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/error.h"
#include "io/tokenizer/hugging_face_parts.h"
#include "io/tokenizer/makers.h"

namespace triax::io {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Where tokenizer.json lies; explains what else the user may have meant.
fs::path find_tokenizer_json(const std::string& model) {
  if (model.empty()) refuse(kModelOption, model, "is missing", "give a tokenizer.json or the directory that holds it");
  const fs::path path = model;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    refuse(kModelOption, model, "there is no such file or directory (names on a model hub are not looked up)",
           "download the model's tokenizer.json and tokenizer_config.json and give their directory");
  }
  if (!fs::is_directory(path, ignored)) return path;
  if (fs::exists(path / "tokenizer.json", ignored)) return path / "tokenizer.json";
  if (fs::exists(path / "vocab.json", ignored) && fs::exists(path / "merges.txt", ignored)) {
    refuse(kModelOption, model, "holds no tokenizer.json",
           "use --tokenizer-type GPT2BPETokenizer with its vocab.json and merges.txt");
  }
  if (fs::exists(path / "tokenizer.model", ignored)) {
    refuse(kModelOption, model, "holds no tokenizer.json",
           "use --tokenizer-type SentencePieceTokenizer --tokenizer-model " + (path / "tokenizer.model").string());
  }
  refuse(kModelOption, model, "holds no tokenizer.json", "give the directory of the model's tokenizer files");
}

std::optional<std::string> token_name(const json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end()) return std::nullopt;
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string())
    return (*it)["content"].get<std::string>();
  return std::nullopt;
}

std::optional<int32_t> id_of(const BpeSpec& spec, const json& vocab, const std::string& token) {
  for (const auto& added : spec.added) {
    if (added.text == token) return added.id;
  }
  if (const auto it = vocab.find(token); it != vocab.end()) return it->get<int32_t>();
  return std::nullopt;
}

// tokenizer.json does not say which token ends a document; the files beside it do. Failing them, a well-known name
// does.
void find_bos_and_eod(const fs::path& file, const json& vocab, BpeSpec& spec) {
  for (const char* beside : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path path = file.parent_path() / beside;
    std::error_code ignored;
    if (!fs::exists(path, ignored)) continue;
    const json config = read_json_file(kModelOption, path.string(), "the model's own file");
    if (!config.is_object()) refuse(kModelOption, path.string(), "is not a JSON object", "give the model's own file");
    const auto eos = token_name(config, "eos_token"), bos = token_name(config, "bos_token");
    if (eos && !spec.eod) {
      spec.eod = id_of(spec, vocab, *eos);
      if (!spec.eod) {
        refuse(kModelOption, path.string(), fmt::format("its eos_token '{}' is not a token of tokenizer.json", *eos),
               "give files of one and the same model");
      }
    }
    if (bos && !spec.bos) spec.bos = id_of(spec, vocab, *bos);
  }
  for (const char* known : {"<|endoftext|>", "<|end_of_text|>", "</s>"}) {
    if (!spec.eod) spec.eod = id_of(spec, vocab, known);
  }
}

BpeSpec read_spec(const fs::path& file, const json& root) {
  if (!root.is_object() || !root.contains("model") || !root["model"].is_object()) {
    throw std::invalid_argument("has no \"model\"");
  }
  BpeSpec spec;
  const json& model = root["model"];
  spec.vocabulary = read_bpe_model(model);
  read_normalizer(root.value("normalizer", json()), spec);
  read_pre_tokenizer(root.value("pre_tokenizer", json()), spec);
  read_added_tokens(root.value("added_tokens", json::array()), spec);
  read_post_processor(root.value("post_processor", json()), spec);
  find_bos_and_eod(file, model["vocab"], spec);
  return spec;
}

}  // namespace

std::unique_ptr<Tokenizer> make_hugging_face_tokenizer(const TokenizerOptions& options) {
  const fs::path file = find_tokenizer_json(options.model);
  const json root = read_json_file(kModelOption, file.string(), "a tokenizer.json");
  BpeSpec spec;
  try {
    spec = read_spec(file, root);
  } catch (const std::invalid_argument& error) {
    refuse(kModelOption, file.string(), error.what(),
           "use a byte-level BPE, or the model's .model with SentencePieceTokenizer");
  } catch (const json::exception& error) {
    refuse(kModelOption, file.string(), fmt::format("is not laid out as a tokenizer.json ({})", error.what()),
           "give the file as the model's authors published it");
  }
  spec.type = options.type;
  return make_bpe(std::move(spec), kModelOption, file.string());
}

}  // namespace triax::io

#include "io/data/description.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/data/atomic_file.h"

namespace triax::io {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kDataSchema = "triax-data-1";

fs::path directory_of(const std::string& prefix) { return fs::absolute(prefix).lexically_normal().parent_path(); }

// Data and tokenizer move together when they lie in one tree.
std::string to_relative(const std::string& path, const fs::path& directory) {
  if (path.empty()) return path;
  return fs::absolute(path).lexically_normal().lexically_relative(directory).string();
}

std::string from_relative(const std::string& path, const fs::path& directory) {
  if (path.empty()) return path;
  return (directory / path).lexically_normal().string();
}

TokenType token_type_of(const std::string& name) {
  for (int code = 1; code <= 8; ++code) {
    if (name_of(static_cast<TokenType>(code)) == name) return static_cast<TokenType>(code);
  }
  throw RunTimeError(fmt::format("unknown token type {}", name));
}

}  // namespace

void write_description(const std::string& prefix, const DatasetDescription& description) {
  const fs::path directory = directory_of(prefix);
  const TokenizerOptions& options = description.tokenizer;
  Json tokenizer;
  tokenizer["type"] = options.type;
  tokenizer["hash"] = description.tokenizer_hash;
  tokenizer["vocab_size"] = description.vocab_size;
  tokenizer["eod"] = description.eod ? Json(*description.eod) : Json(nullptr);
  Json given;
  given["tokenizer_model"] = to_relative(options.model, directory);
  given["vocab_file"] = to_relative(options.vocab_file, directory);
  given["merge_file"] = to_relative(options.merge_file, directory);
  given["vocab_size"] = options.vocab_size;
  given["tiktoken_pattern"] = options.tiktoken_pattern;
  given["tiktoken_num_special_tokens"] = options.tiktoken_num_special_tokens;
  given["tiktoken_special_tokens"] = options.tiktoken_special_tokens;
  tokenizer["options"] = given;
  Json json;
  json["schema"] = kDataSchema;
  json["tokenizer"] = tokenizer;
  json["eod_appended"] = description.eod_appended;
  json["token_type"] = name_of(description.token_type);
  json["documents"] = description.documents;
  json["tokens"] = description.tokens;
  json["text_bytes"] = description.text_bytes;
  json["sources"] = description.sources;
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  AtomicFile file(prefix + ".json");
  file.write(text.data(), text.size());
  file.commit();
}

std::optional<DatasetDescription> read_description(const std::string& prefix) {
  std::ifstream file(prefix + ".json");
  if (!file) return std::nullopt;
  const fs::path directory = directory_of(prefix);
  DatasetDescription description;
  try {
    const Json json = Json::parse(file);
    if (json.at("schema") != kDataSchema) throw RunTimeError(fmt::format("its schema is not {}", kDataSchema));
    const Json& tokenizer = json.at("tokenizer");
    const Json& given = tokenizer.at("options");
    TokenizerOptions& options = description.tokenizer;
    options.type = tokenizer.at("type");
    options.model = from_relative(given.at("tokenizer_model"), directory);
    options.vocab_file = from_relative(given.at("vocab_file"), directory);
    options.merge_file = from_relative(given.at("merge_file"), directory);
    options.vocab_size = given.at("vocab_size");
    options.tiktoken_pattern = given.at("tiktoken_pattern");
    options.tiktoken_num_special_tokens = given.at("tiktoken_num_special_tokens");
    options.tiktoken_special_tokens = given.at("tiktoken_special_tokens").get<std::vector<std::string>>();
    description.tokenizer_hash = tokenizer.at("hash");
    description.vocab_size = tokenizer.at("vocab_size");
    if (!tokenizer.at("eod").is_null()) description.eod = tokenizer.at("eod").get<int32_t>();
    description.eod_appended = json.at("eod_appended");
    description.token_type = token_type_of(json.at("token_type"));
    description.documents = json.at("documents");
    description.tokens = json.at("tokens");
    description.text_bytes = json.at("text_bytes");
    description.sources = json.at("sources").get<std::vector<std::string>>();
  } catch (const std::exception& fault) {
    throw RunTimeError(
        fmt::format("{}.json: cannot be understood: {}; build the data again, or remove the file and give "
                    "the tokenizer by options",
                    prefix, fault.what()));
  }
  return description;
}

void check_tokenizer(const std::string& prefix, const DatasetDescription& description, const Tokenizer& tokenizer) {
  if (tokenizer.hash() == description.tokenizer_hash) return;
  throw ConfigError(
      fmt::format("--tokenizer-type {}: has hash {} and {} ids, but {} was made with {} of hash {} and {} "
                  "ids; give that tokenizer, or none to take it from {}.json",
                  tokenizer.type(), tokenizer.hash(), tokenizer.vocab_size(), prefix, description.tokenizer.type,
                  description.tokenizer_hash, description.vocab_size, prefix));
}

}  // namespace triax::io

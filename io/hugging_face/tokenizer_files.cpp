#include "io/hugging_face/tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "io/data/atomic_file.h"

namespace triax::io {
namespace {

namespace fs = std::filesystem;

/// A copy that is there whole or not at all.
void copy_whole(const fs::path& from, const fs::path& to) {
  std::error_code ignored;
  if (fs::equivalent(from, to, ignored)) return;
  std::ifstream file(from, std::ios::binary);
  std::ostringstream text;
  if (!(text << file.rdbuf())) throw RunTimeError(fmt::format("{}: cannot be read", from.string()));
  fs::create_directories(to.parent_path(), ignored);
  AtomicFile out(to.string());
  out.write(text.view().data(), text.view().size());
  out.commit();
}

class Copier {
 public:
  explicit Copier(const std::string& directory) : directory_(directory) {}

  /// Returns the copy's path.
  std::string required(const std::string& from, const std::string& name) {
    if (from.empty() || !fs::is_regular_file(from)) {
      throw ConfigError(
          fmt::format("the tokenizer's file '{}' is not there: name it with --tokenizer-model, or with "
                      "--vocab-file and --merge-file, or leave it out with --no-tokenizer",
                      from));
    }
    copy_whole(from, directory_ / name);
    copied.files.push_back(name);
    return (directory_ / name).string();
  }
  bool optional(const fs::path& from) {
    if (!fs::is_regular_file(from)) return false;
    copy_whole(from, directory_ / from.filename());
    copied.files.push_back(from.filename().string());
    return true;
  }
  CopiedTokenizer copied;

 private:
  fs::path directory_;
};

}  // namespace

CopiedTokenizer export_tokenizer(const TokenizerOptions& options, const std::string& directory) {
  Copier copier(directory);
  const std::string& type = options.type;
  if (type.empty() || type == "NullTokenizer" || type == "ByteLevelTokenizer") return copier.copied;
  copier.copied.options = options;
  TokenizerOptions& copies = copier.copied.options;
  if (type == "GPT2BPETokenizer") {
    copies.vocab_file = copier.required(options.vocab_file, "vocab.json");
    copies.merge_file = copier.required(options.merge_file, "merges.txt");
  } else if (type == "HuggingFaceTokenizer") {
    fs::path file(options.model);
    if (fs::is_directory(file)) file /= "tokenizer.json";
    copies.model = copier.required(file.string(), "tokenizer.json");
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
      copier.optional(file.parent_path() / name);
    }
  } else if (type == "SentencePieceTokenizer" || type == "Llama2Tokenizer") {
    copies.model = copier.required(options.model, "tokenizer.model");
  } else {
    throw ConfigError(
        fmt::format("tokenizer {}: transformers reads no file of this type; leave it out with --no-tokenizer", type));
  }
  return copier.copied;
}

CopiedTokenizer import_tokenizer(const std::string& from, const std::string& to) {
  Copier copier(to);
  std::vector<std::string> there;
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model", "tokenizer_config.json",
                           "special_tokens_map.json", "added_tokens.json"}) {
    if (copier.optional(fs::path(from) / name)) there.push_back(name);
  }
  const auto has = [&](const char* name) { return std::find(there.begin(), there.end(), name) != there.end(); };
  const auto path = [&](const char* name) { return (fs::path(to) / name).string(); };
  TokenizerOptions& options = copier.copied.options;
  if (has("tokenizer.json")) {
    options.type = "HuggingFaceTokenizer";
    options.model = path("tokenizer.json");
  } else if (has("vocab.json") && has("merges.txt")) {
    options.type = "GPT2BPETokenizer";
    options.vocab_file = path("vocab.json");
    options.merge_file = path("merges.txt");
  } else if (has("tokenizer.model")) {
    options.type = "Llama2Tokenizer";
    options.model = path("tokenizer.model");
  }
  return copier.copied;
}

}  // namespace triax::io

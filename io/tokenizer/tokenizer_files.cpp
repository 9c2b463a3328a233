#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "base/error.h"
#include "io/tokenizer/byte_alphabet.h"
#include "io/tokenizer/makers.h"

namespace triax::io {

void refuse(std::string_view option, std::string_view value, std::string_view rule, std::string_view remedy) {
  throw ConfigError(fmt::format("{} '{}': {}; {}", option, value, rule, remedy));
}

std::string read_whole_file(std::string_view option, const std::string& path, std::string_view what) {
  const auto remedy = fmt::format("give {}", what);
  if (path.empty()) refuse(option, path, "is missing", remedy);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) refuse(option, path, "there is no such file", remedy);
  if (std::filesystem::is_directory(path, ignored)) refuse(option, path, "is a directory", remedy);
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in || (text.view().empty() && std::filesystem::file_size(path, ignored) > 0)) {
    refuse(option, path, "cannot be read", "check its permissions");
  }
  if (text.view().empty()) refuse(option, path, "the file is empty", remedy);
  return std::move(text).str();
}

nlohmann::json read_json_file(std::string_view option, const std::string& path, std::string_view what) {
  const std::string text = read_whole_file(option, path, what);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    refuse(option, path, fmt::format("is not JSON ({})", error.what()), fmt::format("give {}", what));
  }
}

std::unique_ptr<Tokenizer> make_bpe(BpeSpec spec, std::string_view option, const std::string& path) {
  try {
    return std::make_unique<BpeTokenizer>(std::move(spec));
  } catch (const std::invalid_argument& error) {
    refuse(option, path, error.what(), "give the files as the tokenizer's authors published them");
  }
}

std::vector<std::string> read_vocabulary(const nlohmann::json& vocab) {
  if (!vocab.is_object()) throw std::invalid_argument("the vocabulary is not an object of tokens and ids");
  constexpr int64_t kLimit = 1 << 24;
  std::vector<std::string> tokens;
  std::vector<bool> given;
  for (const auto& [token, id] : vocab.items()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kLimit) {
      throw std::invalid_argument(
          fmt::format("token '{}' has the id {}, not an integer in [0, 2^24)", token, id.dump()));
    }
    const auto at = id.get<size_t>();
    if (at >= tokens.size()) {
      tokens.resize(at + 1);
      given.resize(at + 1);
    }
    if (given[at]) throw std::invalid_argument(fmt::format("two tokens have the id {}, one is '{}'", at, token));
    given[at] = true;
    tokens[at] = from_byte_alphabet(token).value_or("");
  }
  return tokens;
}

std::pair<int32_t, int32_t> MergeReader::read(const std::string& left, const std::string& right) const {
  const auto find = [&](const std::string& token) {
    const auto it = vocab_.find(token);
    if (it == vocab_.end())
      throw std::invalid_argument(
          fmt::format("the merge of '{}' and '{}': '{}' is not in the "
                      "vocabulary",
                      left, right, token));
    return it->get<int32_t>();
  };
  return {find(left), find(right)};
}

std::pair<int32_t, int32_t> MergeReader::read(const std::string& line) const {
  const size_t blank = line.find(' ');
  if (blank == std::string::npos || blank == 0 || blank + 1 == line.size() ||
      line.find(' ', blank + 1) != std::string::npos) {
    throw std::invalid_argument(fmt::format("'{}' is not two tokens with a blank between", line));
  }
  return read(line.substr(0, blank), line.substr(blank + 1));
}

}  // namespace triax::io

// TikTokenizer, by Megatron's rules: ids 0..n-1 are special tokens (--tiktoken-num-special-tokens), a rank r of the
// file is the id n + r, and special tokens in a text are recognised. The file is tiktoken's own (base64 of the bytes,
// blank, rank, a line each) or Megatron's JSON ([{"rank", "token_bytes", "token_str"}, ...]).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "io/tokenizer/makers.h"

namespace triax::io {
namespace {

constexpr int64_t kMegatronVocabulary = 1 << 17;  // Megatron's default --vocab-size for this type
constexpr int64_t kRankLimit = 1 << 24;
const std::vector<std::string> kSpecials = {"<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"};

std::string decode_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) throw std::invalid_argument(fmt::format("'{}' is not base64", text));
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  if (text.size() % 4 == 1 || out.empty()) throw std::invalid_argument(fmt::format("'{}' is not base64", text));
  return out;
}

void put(std::vector<std::string>& ranks, int64_t rank, std::string bytes) {
  if (rank < 0 || rank >= kRankLimit) throw std::invalid_argument(fmt::format("rank {} is not in [0, 2^24)", rank));
  if (static_cast<size_t>(rank) >= ranks.size()) ranks.resize(rank + 1);
  if (!ranks[rank].empty()) throw std::invalid_argument(fmt::format("rank {} is given twice", rank));
  ranks[rank] = std::move(bytes);
}

std::vector<std::string> read_rank_lines(std::string_view text) {
  std::vector<std::string> ranks;
  for (int64_t line_number = 1; !text.empty(); ++line_number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t blank = line.find(' ');
    int64_t rank = -1;
    const char* last = line.data() + line.size();
    const bool is_pair = blank != std::string_view::npos;
    const auto parsed = std::from_chars(is_pair ? line.data() + blank + 1 : last, last, rank);
    if (!is_pair || parsed.ec != std::errc() || parsed.ptr != last) {
      throw std::invalid_argument(fmt::format("line {} is not a base64 token, a blank and a rank", line_number));
    }
    put(ranks, rank, decode_base64(line.substr(0, blank)));
  }
  return ranks;
}

std::vector<std::string> read_rank_json(std::string_view text) {
  try {
    std::vector<std::string> ranks;
    for (const auto& entry : nlohmann::json::parse(text)) {
      put(ranks, entry.at("rank").get<int64_t>(), decode_base64(entry.at("token_bytes").get<std::string>()));
    }
    return ranks;
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(fmt::format("is no list of rank and token_bytes ({})", error.what()));
  }
}

std::vector<std::string> special_tokens(const TokenizerOptions& options) {
  auto specials = options.tiktoken_special_tokens.empty() ? kSpecials : options.tiktoken_special_tokens;
  const int64_t wanted = options.tiktoken_num_special_tokens;
  const auto given = static_cast<int64_t>(specials.size());
  if (wanted < given || wanted > kRankLimit) {
    refuse("--tiktoken-num-special-tokens", std::to_string(wanted),
           fmt::format("must hold the {} special tokens {}", given, fmt::join(specials, " ")),
           fmt::format("give {} or more (Megatron's default is 1000)", given));
  }
  for (const auto& needed : {"<unk>", "<s>", "</s>"}) {
    if (std::find(specials.begin(), specials.end(), needed) == specials.end()) {
      refuse("--tiktoken-special-tokens", fmt::format("{}", fmt::join(specials, " ")),
             fmt::format("{} is missing", needed), "name at least <unk> <s> </s>");
    }
  }
  for (int64_t id = given; id < wanted; ++id) specials.push_back(fmt::format("<SPECIAL_{}>", id));
  if (std::set<std::string>(specials.begin(), specials.end()).size() != specials.size()) {
    refuse("--tiktoken-special-tokens", fmt::format("{}", fmt::join(options.tiktoken_special_tokens, " ")),
           "a token is named twice", "name each once");
  }
  return specials;
}

// --vocab-size, or what the file has, cut where Megatron cuts.
int64_t choose_vocabulary_size(const TokenizerOptions& options, int64_t specials, int64_t ranks) {
  const int64_t whole = specials + ranks;
  if (options.vocab_size == 0) {
    if (whole > kMegatronVocabulary) {
      spdlog::info("TikTokenizer: {} of {} ranks are used, as --vocab-size defaults to {}",
                   kMegatronVocabulary - specials, ranks, kMegatronVocabulary);
    }
    return std::min(whole, kMegatronVocabulary);
  }
  if (options.vocab_size < specials + 256 || options.vocab_size > whole) {
    refuse("--vocab-size", std::to_string(options.vocab_size),
           fmt::format("must be {} special tokens plus at least 256 and at most {} ranks of '{}'", specials, ranks,
                       options.model),
           fmt::format("give {} to {}", specials + 256, whole));
  }
  return options.vocab_size;
}

std::vector<std::string> read_ranks(const TokenizerOptions& options) {
  const std::string file = read_whole_file(kModelOption, options.model, "a tiktoken rank file");
  try {
    const size_t first = file.find_first_not_of(" \t\r\n");
    return first != std::string::npos && file[first] == '[' ? read_rank_json(file) : read_rank_lines(file);
  } catch (const std::invalid_argument& error) {
    refuse(kModelOption, options.model, error.what(), "give a .tiktoken rank file or Megatron's JSON of ranks");
  }
}

}  // namespace

std::unique_ptr<Tokenizer> make_tik_tokenizer(const TokenizerOptions& options) {
  const std::string& pattern = options.tiktoken_pattern;
  if (pattern != "v1" && pattern != "v2")
    refuse("--tiktoken-pattern", pattern, "there is no such pattern", "give v1 or v2");
  const auto specials = special_tokens(options);
  const auto ranks = read_ranks(options);
  const auto shift = static_cast<int64_t>(specials.size());
  const int64_t size = choose_vocabulary_size(options, shift, static_cast<int64_t>(ranks.size()));

  BpeSpec spec;
  spec.type = options.type;
  spec.vocabulary.order = MergeOrder::Rank;
  spec.vocabulary.tokens.resize(size);
  std::copy(ranks.begin(), ranks.begin() + std::max<int64_t>(0, size - shift), spec.vocabulary.tokens.begin() + shift);
  for (int64_t id = 0; id < shift; ++id) {
    spec.added.push_back({specials[id], static_cast<int32_t>(id), false});
    if (specials[id] == "<s>") spec.bos = static_cast<int32_t>(id);
    if (specials[id] == "</s>") spec.eod = static_cast<int32_t>(id);
  }
  spec.stages = {{std::string(pattern == "v1" ? tiktoken_v1_pattern() : tiktoken_v2_pattern()), Gaps::Keep}};
  return make_bpe(std::move(spec), kModelOption, options.model);
}

}  // namespace triax::io

// Megatron-LM's --pipeline-model-parallel-layout: stages separated by '|', of the letters E (embedding), t (one
// transformer layer) and L (loss); X*3 and (...)*3 repeat; commas mean nothing. "E|(t|)*3,t|tL" has six stages.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "io/options/options.h"
#include "io/options/values.h"

namespace triax::io {
namespace {

constexpr size_t kLargest = 100000;  // letters; no model has as many layers

class Expander {
 public:
  explicit Expander(std::string text) : text_(std::move(text)) {}

  std::string expand() {
    std::string all = sequence();
    if (at_ < text_.size()) fail("has a ')' without its '('");
    return all;
  }

 private:
  [[noreturn]] static void fail(const std::string& why) {
    throw ConfigError(
        fmt::format("{}; use letters E, t, L, stages separated by |, (...)*N to repeat, "
                    "for example \"Ett|tt|ttL\", or counts such as 2,2,2",
                    why));
  }

  // Items up to ')' or the end, each with an optional "*N".
  std::string sequence() {
    std::string all;
    while (at_ < text_.size() && text_[at_] != ')') {
      std::string item = one();
      if (at_ < text_.size() && text_[at_] == '*') item = repeat(item);
      all += item;
      if (all.size() > kLargest) fail("is too long");
    }
    return all;
  }

  std::string one() {
    const char letter = text_[at_++];
    if (letter == 'm') fail("has 'm': multi-token prediction is not in this version");
    if (letter == 'E' || letter == 't' || letter == 'L' || letter == '|') return {letter};
    if (letter != '(') fail(fmt::format("has '{}'", letter));
    std::string inside = sequence();
    if (at_ == text_.size()) fail("has a '(' without its ')'");
    ++at_;
    return inside;
  }

  std::string repeat(const std::string& item) {
    const size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    const std::optional<int64_t> times = parse_integer(text_.substr(begin, at_ - begin));
    if (!times || *times < 1) fail("has a '*' without a number of at least 1");
    if (static_cast<size_t>(*times) > kLargest || item.size() * static_cast<size_t>(*times) > kLargest) {
      fail("is too long");
    }
    std::string all;
    for (int64_t i = 0; i < *times; ++i) all += item;
    return all;
  }

  std::string text_;
  size_t at_ = 0;
};

std::vector<int64_t> parse_counts(const std::string& text) {
  std::vector<int64_t> counts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::optional<int64_t> count = parse_integer(text.substr(begin, end - begin));
    if (!count || *count < 0) throw ConfigError("must be counts of layers such as 8,8,7,7");
    counts.push_back(*count);
    begin = end + 1;
  }
  return counts;
}

}  // namespace

std::vector<int64_t> parse_layout(const std::string& text) {
  if (!text.empty() && text.find_first_not_of("0123456789,") == std::string::npos) return parse_counts(text);
  std::string letters = text;
  std::erase_if(letters, [](char c) { return c == ',' || c == ' ' || c == '\'' || c == '"'; });
  const std::string flat = Expander(letters).expand();
  std::vector<int64_t> counts = {0};
  for (const char letter : flat) {
    if (letter == '|') counts.push_back(0);
    if (letter == 't') ++counts.back();
  }
  const bool embedding_first = flat.starts_with('E') && std::count(flat.begin(), flat.end(), 'E') == 1;
  const bool loss_last = flat.ends_with('L') && std::count(flat.begin(), flat.end(), 'L') == 1;
  if (!embedding_first || !loss_last) {
    throw ConfigError("must begin with its only E (embedding) and end with its only L (loss), as in \"Ett|tt|ttL\"");
  }
  return counts;
}

}  // namespace triax::io

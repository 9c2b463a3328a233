#include "io/options/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <sstream>

namespace triax::io {
namespace {

// std::from_chars knows no leading '+', which people write in exponents' company ("+1").
template <class T>
std::optional<T> parse_whole(const std::string& text) {
  const size_t begin = text.size() > 1 && text[0] == '+' && text[1] != '-' ? 1 : 0;
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + begin, end, value);
  if (text.empty() || error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> parse_integer(const std::string& text) { return parse_whole<int64_t>(text); }

std::optional<double> parse_real(const std::string& text) {
  const std::optional<double> value = parse_whole<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<bool> parse_bool(const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

std::string text_of(double value) { return fmt::format("{}", value); }

std::string join(const std::vector<std::string>& values) { return fmt::format("{}", fmt::join(values, " ")); }

std::vector<std::string> split_blanks(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace triax::io

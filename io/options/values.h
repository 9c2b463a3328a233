// Text to values and back: numbers are read wholly ("12x" is no number), doubles print so that they read back exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace triax::io {

std::optional<int64_t> parse_integer(const std::string& text);
/// Finite numbers only.
std::optional<double> parse_real(const std::string& text);
/// "true", "false".
std::optional<bool> parse_bool(const std::string& text);
std::string text_of(double value);
/// Values of one option, separated by blanks.
std::string join(const std::vector<std::string>& values);
std::vector<std::string> split_blanks(const std::string& text);

}  // namespace triax::io

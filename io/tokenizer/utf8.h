// UTF-8 that may be broken: where it is valid, and how to show it when it is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace triax::io {

/// Bytes of the well-formed code point that `text` begins with (1..4); 0 when it begins with none (Unicode table 3-7:
/// no overlong forms, no surrogates, at most U+10FFFF).
size_t utf8_length(std::string_view text);

/// Length of the longest well-formed prefix of `text`; equals text.size() for valid UTF-8.
size_t utf8_valid_prefix(std::string_view text);

/// Code point of the well-formed sequence of `length` bytes that `text` begins with.
char32_t utf8_decode(std::string_view text, size_t length);

/// Appends `code` as UTF-8.
void utf8_append(char32_t code, std::string& out);

/// `bytes` with every byte that belongs to no well-formed code point replaced by U+FFFD.
std::string valid_utf8(std::string_view bytes);

}  // namespace triax::io

#include "io/tokenizer/byte_alphabet.h"

#include <algorithm>
#include <array>

#include "io/tokenizer/utf8.h"

namespace triax::io {
namespace {

constexpr char32_t kFirstSubstitute = 0x100;  // 68 bytes have no printable character of their own

constexpr bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, 0x144> byte{};  // by character; -1: not of the alphabet
};

constexpr Alphabet make_alphabet() {
  Alphabet a;
  a.byte.fill(-1);
  char32_t substitute = kFirstSubstitute;
  for (int b = 0; b < 256; ++b) {
    a.character[b] = is_printable(b) ? static_cast<char32_t>(b) : substitute++;
    a.byte[a.character[b]] = static_cast<int16_t>(b);
  }
  return a;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t byte_to_char(uint8_t byte) { return kAlphabet.character[byte]; }

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) utf8_append(byte_to_char(static_cast<uint8_t>(c)), out);
  return out;
}

std::optional<std::string> from_byte_alphabet(std::string_view token) {
  std::string out;
  while (!token.empty()) {
    const size_t length = utf8_length(token);
    if (length == 0) return std::nullopt;
    const char32_t code = utf8_decode(token, length);
    if (code >= kAlphabet.byte.size() || kAlphabet.byte[code] < 0) return std::nullopt;
    out += static_cast<char>(kAlphabet.byte[code]);
    token.remove_prefix(length);
  }
  return out;
}

std::vector<uint8_t> bytes_in_alphabet_order() {
  std::vector<uint8_t> bytes(256);
  for (int b = 0; b < 256; ++b) bytes[b] = static_cast<uint8_t>(b);
  std::sort(bytes.begin(), bytes.end(), [](uint8_t a, uint8_t b) { return byte_to_char(a) < byte_to_char(b); });
  return bytes;
}

}  // namespace triax::io

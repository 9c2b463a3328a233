// The alphabet in which byte-level vocabularies are written: one printable character per byte (Radford et al. 2019), so
// that "Ġthe" in vocab.json stands for " the".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace triax::io {

/// Character of a byte: itself for 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF, else U+0100, U+0101, ... in order of the bytes.
char32_t byte_to_char(uint8_t byte);

/// `bytes` in the alphabet, as UTF-8.
std::string to_byte_alphabet(std::string_view bytes);

/// The bytes that `token` stands for; nullopt when some character is not of the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view token);

/// The 256 bytes in the order of their characters, which is the order of ids 0..255 in GPT-2's vocabulary.
std::vector<uint8_t> bytes_in_alphabet_order();

}  // namespace triax::io

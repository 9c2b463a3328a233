// Element types of a Megatron `.bin` file and their codes in the `.idx` header.
#pragma once

#include <cstdint>
#include <string_view>

namespace triax::io {

/// The value is the code stored in byte 17 of an `.idx` file.
enum class TokenType : uint8_t {
  UInt8 = 1,
  Int8 = 2,
  Int16 = 3,
  Int32 = 4,
  Int64 = 5,
  Float64 = 6,
  Float32 = 7,
  UInt16 = 8
};

/// Bytes of one token.
int64_t size_of(TokenType type);
/// numpy's name: "uint16", "int32", ...
std::string_view name_of(TokenType type);
/// Whether ids of 0 .. vocab_size-1 can be stored; floating types cannot hold tokens.
bool holds_vocabulary(TokenType type, int64_t vocab_size);
/// Megatron's choice for a new file: uint16 below 65500 ids, else int32.
TokenType token_type_for(int64_t vocab_size);

}  // namespace triax::io

#include "io/data/token_type.h"

#include <limits>

#include "base/error.h"

namespace triax::io {

int64_t size_of(TokenType type) {
  switch (type) {
    case TokenType::UInt8:
    case TokenType::Int8:
      return 1;
    case TokenType::Int16:
    case TokenType::UInt16:
      return 2;
    case TokenType::Int32:
    case TokenType::Float32:
      return 4;
    case TokenType::Int64:
    case TokenType::Float64:
      return 8;
  }
  ensure(false, "size_of: no such token type");
  return 0;
}

std::string_view name_of(TokenType type) {
  switch (type) {
    case TokenType::UInt8:
      return "uint8";
    case TokenType::Int8:
      return "int8";
    case TokenType::Int16:
      return "int16";
    case TokenType::Int32:
      return "int32";
    case TokenType::Int64:
      return "int64";
    case TokenType::Float64:
      return "float64";
    case TokenType::Float32:
      return "float32";
    case TokenType::UInt16:
      return "uint16";
  }
  return "unknown";
}

bool holds_vocabulary(TokenType type, int64_t vocab_size) {
  switch (type) {
    case TokenType::UInt8:
      return vocab_size <= 256;
    case TokenType::Int8:
      return vocab_size <= 128;
    case TokenType::Int16:
      return vocab_size <= 32768;
    case TokenType::UInt16:
      return vocab_size <= 65536;
    case TokenType::Int32:
    case TokenType::Int64:
      return vocab_size <= std::numeric_limits<int32_t>::max();
    case TokenType::Float64:
    case TokenType::Float32:
      return false;
  }
  return false;
}

TokenType token_type_for(int64_t vocab_size) { return vocab_size < 65500 ? TokenType::UInt16 : TokenType::Int32; }

}  // namespace triax::io

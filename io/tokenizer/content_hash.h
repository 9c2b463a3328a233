// FNV-1a over tagged fields: a hash that names a tokenizer, the same on every machine and run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace triax::io {

class ContentHash {
 public:
  /// Length first, so that "ab","c" and "a","bc" differ.
  void add(std::string_view bytes) {
    add(static_cast<int64_t>(bytes.size()));
    for (const char c : bytes) mix(static_cast<uint8_t>(c));
  }
  /// Eight bytes, least significant first.
  void add(int64_t number) {
    for (int i = 0; i < 8; ++i) mix(static_cast<uint8_t>(static_cast<uint64_t>(number) >> 8 * i));
  }
  /// 16 lower-case hex digits.
  std::string hex() const {
    std::string out(16, '0');
    for (int i = 0; i < 16; ++i) out[i] = "0123456789abcdef"[state_ >> (60 - 4 * i) & 15];
    return out;
  }

 private:
  void mix(uint8_t byte) { state_ = (state_ ^ byte) * 0x100000001B3ull; }

  uint64_t state_ = 0xCBF29CE484222325ull;
};

}  // namespace triax::io

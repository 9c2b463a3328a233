// Bytes of an input: a file or standard input, plain, gzip or zstd (told by content, not by name).
#pragma once

#include <memory>
#include <span>
#include <string>

namespace triax::io {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills the front of `out`; returns the bytes written, 0 at the end. Throws RunTimeError for a read error or damaged
  /// compressed data.
  virtual size_t read(std::span<char> out) = 0;
};

/// `path` "-" is standard input. Throws RunTimeError when it cannot be opened.
std::unique_ptr<ByteSource> open_byte_source(const std::string& path);

}  // namespace triax::io

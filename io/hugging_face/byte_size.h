// Sizes as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace triax::io {

/// "5GB", "500MB", "10KB" (powers of 1000, as in transformers), "1GiB", "64MiB", "4KiB" (powers of 1024), "123" bytes.
/// Nothing for another text, for 0 and for more than 2^62.
std::optional<int64_t> parse_byte_size(const std::string& text);

}  // namespace triax::io

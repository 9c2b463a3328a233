#include "io/hugging_face/byte_size.h"

#include <algorithm>
#include <array>
#include <utility>

#include "io/options/values.h"

namespace triax::io {

std::optional<int64_t> parse_byte_size(const std::string& text) {
  static constexpr std::array<std::pair<const char*, double>, 8> kUnits{{{"KiB", 0x1p10},
                                                                         {"MiB", 0x1p20},
                                                                         {"GiB", 0x1p30},
                                                                         {"TiB", 0x1p40},
                                                                         {"KB", 1e3},
                                                                         {"MB", 1e6},
                                                                         {"GB", 1e9},
                                                                         {"TB", 1e12}}};
  std::string number = text;
  double unit = 1;
  for (const auto& [name, bytes] : kUnits) {
    if (!text.ends_with(name)) continue;
    unit = bytes;
    number = text.substr(0, text.size() - std::string(name).size());
    break;
  }
  const std::optional<double> value = parse_real(number);
  if (!value || !(*value * unit >= 1) || *value * unit > 0x1p62) return std::nullopt;
  return static_cast<int64_t>(*value * unit);
}

}  // namespace triax::io

// A text into its parts.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace triax {

/// What stands between separators; nothing behind one at the end.
inline std::vector<std::string> split(const std::string& text, char separator) {
  std::istringstream stream(text);
  std::vector<std::string> parts;
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

}  // namespace triax

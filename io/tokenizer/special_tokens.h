// Tokens that are cut out of a text whole, before anything else looks at it: <|endoftext|> and its kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace triax::io {

/// Finds the leftmost, and there the longest, of a set of strings. Immutable; find() may be called from many threads.
class SpecialTokenFinder {
 public:
  struct Found {
    size_t begin;   ///< bytes into the text
    size_t length;  ///< bytes; 0 when there is none
    int32_t id;
  };

  SpecialTokenFinder() = default;
  explicit SpecialTokenFinder(const std::vector<std::pair<std::string, int32_t>>& tokens);
  SpecialTokenFinder(const SpecialTokenFinder&) = delete;
  SpecialTokenFinder& operator=(const SpecialTokenFinder&) = delete;

  /// First special token at or after `from`. Costs a scan for the few first bytes that the tokens have.
  Found find(std::string_view text, size_t from) const;

 private:
  std::vector<std::string> texts_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views into texts_
  std::vector<size_t> lengths_;                        // distinct lengths, longest first
  std::string first_bytes_;
};

}  // namespace triax::io

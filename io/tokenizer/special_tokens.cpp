#include "io/tokenizer/special_tokens.h"

#include <algorithm>
#include <functional>

namespace triax::io {

SpecialTokenFinder::SpecialTokenFinder(const std::vector<std::pair<std::string, int32_t>>& tokens) {
  texts_.reserve(tokens.size());
  for (const auto& [text, id] : tokens) {
    if (text.empty()) continue;
    texts_.push_back(text);
    ids_.emplace(texts_.back(), id);
    lengths_.push_back(text.size());
    if (first_bytes_.find(text[0]) == std::string::npos) first_bytes_ += text[0];
  }
  std::sort(lengths_.begin(), lengths_.end(), std::greater<>());
  lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());
}

SpecialTokenFinder::Found SpecialTokenFinder::find(std::string_view text, size_t from) const {
  if (first_bytes_.empty()) return {text.size(), 0, -1};
  while (true) {
    const size_t at =
        first_bytes_.size() == 1 ? text.find(first_bytes_[0], from) : text.find_first_of(first_bytes_, from);
    if (at == std::string_view::npos) return {text.size(), 0, -1};
    for (const size_t length : lengths_) {
      if (length > text.size() - at) continue;
      const auto it = ids_.find(text.substr(at, length));
      if (it != ids_.end()) return {at, length, it->second};
    }
    from = at + 1;
  }
}

}  // namespace triax::io

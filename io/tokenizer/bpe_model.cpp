#include "io/tokenizer/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <stdexcept>

namespace triax::io {
namespace {

constexpr size_t kShortWord = 64;  // bytes; longer words use the heap
constexpr int32_t kNoMerge = std::numeric_limits<int32_t>::max();

size_t count_pairs(const BpeVocabulary& v) {
  if (v.order == MergeOrder::List) return v.merges.size();
  size_t cuts = 0;
  for (const auto& token : v.tokens) cuts += token.size();
  return cuts;
}

std::string in_quotes(std::string_view bytes) {
  std::string out = "'";
  for (const char c : bytes) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      out += fmt::format("\\x{:02X}", static_cast<uint8_t>(c));
    }
  }
  return out + "'";
}

}  // namespace

BpeModel::BpeModel(BpeVocabulary vocabulary) : vocabulary_(std::move(vocabulary)), merges_(count_pairs(vocabulary_)) {
  index_tokens();
  index_merges();
  index_words();
}

void BpeModel::index_tokens() {
  byte_ids_.fill(-1);
  const auto& tokens = vocabulary_.tokens;
  ids_.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id].empty()) continue;
    const auto [it, fresh] = ids_.emplace(tokens[id], static_cast<int32_t>(id));
    if (!fresh)
      throw std::invalid_argument(fmt::format("ids {} and {} are both {}", it->second, id, in_quotes(tokens[id])));
    if (tokens[id].size() == 1) byte_ids_[static_cast<uint8_t>(tokens[id][0])] = static_cast<int32_t>(id);
    longest_token_ = std::max(longest_token_, tokens[id].size());
  }
  const auto missing = std::count(byte_ids_.begin(), byte_ids_.end(), -1);
  if (missing > 0) {
    throw std::invalid_argument(
        fmt::format("{} of the 256 bytes have no token, so some texts could not be encoded", missing));
  }
}

void BpeModel::index_merges() {
  const auto& tokens = vocabulary_.tokens;
  if (vocabulary_.order == MergeOrder::List) {
    int32_t rank = 0;
    for (const auto& [left, right] : vocabulary_.merges) {
      const auto whole = ids_.find(tokens[left] + tokens[right]);
      if (whole == ids_.end()) {
        throw std::invalid_argument(fmt::format("merge {}: {} + {} is not in the vocabulary", rank + 1,
                                                in_quotes(tokens[left]), in_quotes(tokens[right])));
      }
      merges_.insert(left, right, {rank++, whole->second});
    }
    return;
  }
  for (const auto& [bytes, id] : ids_) {
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = ids_.find(bytes.substr(0, cut));
      const auto right = ids_.find(bytes.substr(cut));
      if (left != ids_.end() && right != ids_.end()) merges_.insert(left->second, right->second, {id, id});
    }
  }
}

// Most words of a text are one token. A token whose own bytes encode to it can be looked up instead of merged; this is
// decided here once per token, not per word, so that encode() needs no cache and no lock.
void BpeModel::index_words() {
  if (vocabulary_.whole_words_first || vocabulary_.order == MergeOrder::Rank) {
    words_ = ids_;
    return;
  }
  std::vector<int32_t> encoded;
  std::vector<std::pair<std::string_view, int32_t>> known;
  for (const auto& [bytes, id] : ids_) {
    encoded.clear();
    merge_short(bytes, encoded);
    if (encoded.size() == 1 && encoded[0] == id) known.emplace_back(bytes, id);
  }
  words_.insert(known.begin(), known.end());
}

void BpeModel::encode(std::string_view word, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  if (word.size() <= longest_token_) {
    const auto it = words_.find(word);
    if (it != words_.end()) {
      out.push_back(it->second);
      return;
    }
  }
  word.size() <= kShortWord ? merge_short(word, out) : merge_long(word, out);
}

void BpeModel::merge_short(std::string_view word, std::vector<int32_t>& out) const {
  if (word.size() > kShortWord) return merge_long(word, out);
  int32_t ids[kShortWord];
  Merge next[kShortWord];  // next[i]: merge of ids[i] and ids[i + 1]
  const auto look_up = [&](size_t i) {
    const Merge* merge = merges_.find(ids[i], ids[i + 1]);
    next[i] = merge ? *merge : Merge{kNoMerge, -1};
  };
  size_t count = word.size();
  for (size_t i = 0; i < count; ++i) ids[i] = byte_ids_[static_cast<uint8_t>(word[i])];
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (next[i].rank < next[best].rank) best = i;
    }
    if (next[best].rank == kNoMerge) break;
    ids[best] = next[best].id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      next[i] = next[i + 1];
    }
    --count;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  out.insert(out.end(), ids, ids + count);
}

// Linked list of symbols and a heap of candidate merges; a candidate is stale when a neighbour has changed since.
void BpeModel::merge_long(std::string_view word, std::vector<int32_t>& out) const {
  struct Symbol {
    int32_t id;  // -1: merged into its left neighbour
    ptrdiff_t previous, next;
  };
  struct Candidate {
    int32_t rank;
    ptrdiff_t at;
    int32_t left, right, id;
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  const auto size = static_cast<ptrdiff_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  for (ptrdiff_t i = 0; i < size; ++i) symbols[i] = {byte_ids_[static_cast<uint8_t>(word[i])], i - 1, i + 1};
  std::priority_queue<Candidate> heap;
  const auto consider = [&](ptrdiff_t at) {
    if (at < 0 || symbols[at].next >= size) return;
    const int32_t left = symbols[at].id, right = symbols[symbols[at].next].id;
    if (const Merge* merge = merges_.find(left, right)) heap.push({merge->rank, at, left, right, merge->id});
  };
  for (ptrdiff_t i = 0; i + 1 < size; ++i) consider(i);
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    Symbol& left = symbols[best.at];
    if (left.id != best.left || left.next >= size || symbols[left.next].id != best.right) continue;
    Symbol& right = symbols[left.next];
    left.id = best.id;
    right.id = -1;
    left.next = right.next;
    if (left.next < size) symbols[left.next].previous = best.at;
    consider(left.previous);
    consider(best.at);
  }
  for (ptrdiff_t i = 0; i < size; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace triax::io

// Byte-pair encoding of one word (Sennrich et al. 2016, arXiv 1508.07909) over bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/tokenizer/pair_table.h"

namespace triax::io {

/// Which neighbours may merge, and in which order.
enum class MergeOrder {
  List,  ///< as listed (merges.txt, tokenizer.json)
  Rank,  ///< any two tokens whose bytes together are a token; the smaller id first (tiktoken)
};

/// Vocabulary and merges of a byte-level BPE.
struct BpeVocabulary {
  std::vector<std::string> tokens;  ///< bytes by id; empty: no token that words are made of (a hole or a special)
  std::vector<std::pair<int32_t, int32_t>> merges;  ///< List only: ids (left, right), first merged first
  MergeOrder order = MergeOrder::List;
  bool whole_words_first =
      false;  ///< a word that is a token is not merged up to it (ignore_merges; always so for Rank)
};

/// Immutable; encode() may be called from many threads.
class BpeModel {
 public:
  /// Throws std::invalid_argument with the reason: a byte without a token, two tokens of the same bytes, a merge whose
  /// result is no token.
  explicit BpeModel(BpeVocabulary vocabulary);
  BpeModel(const BpeModel&) = delete;
  BpeModel& operator=(const BpeModel&) = delete;

  /// Appends the ids of one word. O(n^2) with a small constant up to 64 bytes, O(n log n) above.
  void encode(std::string_view word, std::vector<int32_t>& out) const;

  const BpeVocabulary& vocabulary() const { return vocabulary_; }

 private:
  void index_tokens();
  void index_merges();
  void index_words();
  void merge_short(std::string_view word, std::vector<int32_t>& out) const;
  void merge_long(std::string_view word, std::vector<int32_t>& out) const;

  BpeVocabulary vocabulary_;
  std::array<int32_t, 256> byte_ids_{};
  std::unordered_map<std::string_view, int32_t> words_;  // words whose encoding is known to be this one token
  std::unordered_map<std::string_view, int32_t> ids_;    // views into vocabulary_.tokens
  size_t longest_token_ = 1;                             // bytes
  PairTable merges_;
};

}  // namespace triax::io

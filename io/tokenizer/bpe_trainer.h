// Learns a byte-level BPE: merges the most frequent pair of neighbouring tokens within words, again and again (Sennrich
// et al. 2016, arXiv 1508.07909, algorithm 1). Counts of pairs are updated where a merge touches them, not recounted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace triax::io {

/// Tokens by id (ids 0..255 are the bytes in order of their alphabet) and the merges that made the others.
struct LearnedBpe {
  std::vector<std::string> tokens;
  std::vector<std::pair<int32_t, int32_t>> merges;
};

class BpeTrainer {
 public:
  BpeTrainer();

  void add_word(std::string_view word, int64_t count = 1) { words_[std::string(word)] += count; }

  /// Merges until there are `vocab_size` tokens or no pair occurs twice. Among equally frequent pairs the one of
  /// smaller ids goes first, so the result depends on the counts alone.
  LearnedBpe learn(int64_t vocab_size) const;

 private:
  std::unordered_map<std::string, int64_t> words_;
  int32_t byte_ids_[256];
};

}  // namespace triax::io

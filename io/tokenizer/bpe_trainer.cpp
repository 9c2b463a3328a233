#include "io/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <queue>

#include "io/tokenizer/byte_alphabet.h"

namespace triax::io {
namespace {

using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& p) const {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(p.first)) << 32 | static_cast<uint32_t>(p.second);
    return key * 0x9E3779B97F4A7C15ull >> 16;
  }
};

struct Word {
  std::vector<int32_t> ids;
  int64_t count;
};

struct Occurrences {
  int64_t count = 0;
  std::vector<uint32_t> words;  // indices, perhaps repeated, perhaps of words that lost the pair since
};

struct Candidate {
  int64_t count;
  Pair pair;
  bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : pair > o.pair; }
};

/// The words being merged and where each pair occurs in them.
class Merging {
 public:
  explicit Merging(std::vector<Word> words) : words_(std::move(words)) {
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const auto& ids = words_[w].ids;
      for (size_t i = 0; i + 1 < ids.size(); ++i) add({ids[i], ids[i + 1]}, w);
    }
    for (const auto& [pair, occurrences] : pairs_) heap_.push({occurrences.count, pair});
    touched_.clear();
  }

  /// The most frequent pair; its count is 0 when none is left.
  Candidate most_frequent() {
    while (!heap_.empty()) {
      const Candidate top = heap_.top();
      const auto it = pairs_.find(top.pair);
      const int64_t count = it == pairs_.end() ? 0 : it->second.count;
      if (count == top.count) return top;
      heap_.pop();  // stale: the true count was pushed when it changed
    }
    return {0, {}};
  }

  void merge(Pair pair, int32_t id) {
    auto where = std::move(pairs_[pair].words);
    pairs_.erase(pair);
    std::sort(where.begin(), where.end());
    where.erase(std::unique(where.begin(), where.end()), where.end());
    for (const uint32_t w : where) merge_in_word(pair, id, w);
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const Pair& changed : touched_) {
      const auto it = pairs_.find(changed);
      if (it != pairs_.end() && it->second.count > 0) heap_.push({it->second.count, changed});
    }
    touched_.clear();
  }

 private:
  void add(Pair pair, uint32_t w) {
    auto& occurrences = pairs_[pair];
    occurrences.count += words_[w].count;
    if (occurrences.words.empty() || occurrences.words.back() != w) occurrences.words.push_back(w);
    touched_.push_back(pair);
  }

  void remove(Pair pair, uint32_t w) {
    const auto it = pairs_.find(pair);
    if (it == pairs_.end()) return;
    it->second.count -= words_[w].count;
    touched_.push_back(pair);
  }

  // Uncounts all pairs of the word, merges, counts again: words are short.
  void merge_in_word(Pair pair, int32_t id, uint32_t w) {
    auto& ids = words_[w].ids;
    bool has_pair = false;
    for (size_t i = 0; i + 1 < ids.size(); ++i) has_pair |= Pair{ids[i], ids[i + 1]} == pair;
    if (!has_pair) return;
    for (size_t i = 0; i + 1 < ids.size(); ++i) remove({ids[i], ids[i + 1]}, w);
    size_t kept = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool merges = i + 1 < ids.size() && Pair{ids[i], ids[i + 1]} == pair;
      ids[kept++] = merges ? id : ids[i];
      if (merges) ++i;
    }
    ids.resize(kept);
    for (size_t i = 0; i + 1 < ids.size(); ++i) add({ids[i], ids[i + 1]}, w);
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, Occurrences, PairHash> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<Pair> touched_;
};

}  // namespace

BpeTrainer::BpeTrainer() {
  int32_t id = 0;
  for (const uint8_t byte : bytes_in_alphabet_order()) byte_ids_[byte] = id++;
}

LearnedBpe BpeTrainer::learn(int64_t vocab_size) const {
  LearnedBpe learned;
  std::unordered_map<std::string, int32_t> known;
  for (const uint8_t byte : bytes_in_alphabet_order()) learned.tokens.emplace_back(1, static_cast<char>(byte));
  std::vector<Word> words;
  words.reserve(words_.size());
  for (const auto& [text, count] : words_) {
    Word word{{}, count};
    for (const char c : text) word.ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    words.push_back(std::move(word));
  }
  Merging merging(std::move(words));
  while (static_cast<int64_t>(learned.tokens.size()) < vocab_size) {
    const Candidate best = merging.most_frequent();
    if (best.count < 2) break;
    const auto [left, right] = best.pair;
    std::string token = learned.tokens[left] + learned.tokens[right];
    // The same bytes may have become a token by another pair: both merges then give its id.
    const auto [it, fresh] = known.emplace(token, static_cast<int32_t>(learned.tokens.size()));
    if (fresh) learned.tokens.push_back(std::move(token));
    learned.merges.push_back(best.pair);
    merging.merge(best.pair, it->second);
  }
  return learned;
}

}  // namespace triax::io

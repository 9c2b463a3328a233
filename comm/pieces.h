// How a buffer is cut into one piece for each rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace triax::comm {

/// Pieces of equal size (even) or of given sizes, one after the other, in elements.
class Pieces {
 public:
  static Pieces even(int64_t each, int ranks) { return Pieces(each, ranks, {}); }
  static Pieces of(std::span<const int64_t> counts) { return Pieces(0, static_cast<int>(counts.size()), counts); }

  int ranks() const { return ranks_; }
  int64_t count(int rank) const { return counts_.empty() ? each_ : counts_[static_cast<size_t>(rank)]; }
  int64_t begin(int rank) const {
    if (counts_.empty()) return each_ * rank;
    int64_t sum = 0;
    for (int r = 0; r < rank; ++r) sum += counts_[static_cast<size_t>(r)];
    return sum;
  }
  int64_t total() const { return begin(ranks_); }
  int64_t largest() const { return counts_.empty() ? each_ : *std::max_element(counts_.begin(), counts_.end()); }

 private:
  Pieces(int64_t each, int ranks, std::span<const int64_t> counts) : each_(each), ranks_(ranks), counts_(counts) {}
  int64_t each_;
  int ranks_;
  std::span<const int64_t> counts_;
};

/// Elements of the parts into which `ranks` ranks cut a buffer that only messages reach: as equal as can be.
struct Slice {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
inline Slice even_slice(int64_t count, int rank, int ranks) {
  const int64_t each = count / ranks;
  const int64_t longer = count % ranks;  // the first parts have one element more
  const auto begin = [&](int64_t r) { return each * r + std::min(longer, r); };
  return {begin(rank), begin(rank + 1)};
}

/// Elements [begin, end) of a buffer of `count` elements that rank `rank` of `ranks` works on: equal parts, cut at
/// multiples of 64 elements, so that two ranks never write to the same cache line.
inline Slice slice_of(int64_t count, int rank, int ranks) {
  const int64_t each = ((count + ranks - 1) / ranks + 63) / 64 * 64;
  return {std::min(count, each * rank), std::min(count, each * (rank + 1))};
}

}  // namespace triax::comm

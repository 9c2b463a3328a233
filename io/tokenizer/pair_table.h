// Hash table from a pair of token ids to the merge it makes: open addressing, built once, read by many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace triax::io {

/// What two neighbouring tokens merge to; the smaller rank merges first.
struct Merge {
  int32_t rank;
  int32_t id;
};

/// At most half full, linear probing.
class PairTable {
 public:
  explicit PairTable(size_t pairs) {
    size_t slots = 16;
    while (slots < 2 * pairs) slots *= 2;
    slots_.resize(slots, {kEmpty, {}});
  }

  /// Adds a pair; keeps the smaller rank when it is there already. The caller adds no more than it announced.
  void insert(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[find_slot(key(left, right))];
    if (slot.key != kEmpty && slot.merge.rank <= merge.rank) return;
    slot = {key(left, right), merge};
  }

  /// nullptr when the pair does not merge.
  const Merge* find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[find_slot(key(left, right))];
    return slot.key == kEmpty ? nullptr : &slot.merge;
  }

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no id is negative

  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t find_slot(uint64_t wanted) const {
    const size_t mask = slots_.size() - 1;
    size_t at = (wanted * 0x9E3779B97F4A7C15ull >> 20) & mask;
    while (slots_[at].key != kEmpty && slots_[at].key != wanted) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
};

}  // namespace triax::io

// Which freed memory an arena hands out again.
#include <gtest/gtest.h>

#include <vector>

#include "base/memory.h"

namespace triax {
namespace {

constexpr size_t kBytes = 256;

/// A step that ends with nothing live: four buffers, freed in an order of their own, and two more in between.
std::vector<void*> step(Arena& arena) {
  std::vector<Buffer> held;
  std::vector<void*> addresses;
  const auto take = [&] {
    held.push_back(arena.allocate(kBytes, MemoryCategory::Workspace));
    addresses.push_back(held.back().data());
  };
  for (int i = 0; i < 4; ++i) take();
  held[0].reset();
  held[2].reset();
  take();
  take();
  held[1].reset();
  held[3].reset();
  take();
  return addresses;
}

TEST(Arena, WithTheLowestAddressFirstASequenceHasTheSameAddressesEveryTime) {
  HeapProvider heap;
  Arena latest(heap), lowest(heap);
  step(latest);
  step(lowest);
  lowest.reuse(Reuse::Lowest);
  const std::vector<void*> first = step(lowest);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(step(lowest), first);
  EXPECT_EQ(lowest.provider_calls(), 4);
  EXPECT_LT(first[0], first[1]);
  EXPECT_EQ(first[4], first[0]) << "the lowest of the two that are free";
  EXPECT_EQ(first[5], first[2]);
  // The one freed last is at hand first.
  const Buffer held = latest.allocate(kBytes, MemoryCategory::Workspace);
  void* const data = held.data();
  Buffer other = latest.allocate(kBytes, MemoryCategory::Workspace);
  void* const freed = other.data();
  other.reset();
  EXPECT_EQ(latest.allocate(kBytes, MemoryCategory::Workspace).data(), freed);
  EXPECT_NE(data, freed);
}

}  // namespace
}  // namespace triax

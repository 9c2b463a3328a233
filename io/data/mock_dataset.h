// `--mock-data`: text without files, with something to learn.
#pragma once

#include <cstdint>

#include "io/data/token_dataset.h"

namespace triax::io {

/// Sample k is a walk over min(V, 256) ids A: x' = (5 x + 17) mod A with probability 7/8, else uniform, drawn by
/// Philox from (seed, k, position). A model that learns the map reaches a loss of about ln(8/7) * 7/8 + ln(8 A) / 8.
class MockDataset final : public TokenDataset {
 public:
  struct Shape {
    int64_t samples = 0;
    int64_t vocab_size = 0;
    uint64_t seed = 0;
  };
  explicit MockDataset(const Shape& shape);
  int64_t size() const override { return shape_.samples; }
  void sample(int64_t k, std::span<int32_t> out) const override;

 private:
  Shape shape_;
  uint32_t active_;
};

}  // namespace triax::io

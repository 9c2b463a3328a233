// What a batch is made of: samples of s + 1 tokens, addressed by a global sample id.
#pragma once

#include <cstdint>
#include <span>

namespace triax::io {

/// Sample k is the same in every layout and in every run with the same data, split, seed and sequence length. Thread-
/// safe.
class TokenDataset {
 public:
  virtual ~TokenDataset() = default;
  /// Samples; ids are 0 .. size()-1.
  virtual int64_t size() const = 0;
  /// out [s + 1] = tokens of sample k: inputs out[0 .. s-1], targets out[1 .. s].
  virtual void sample(int64_t k, std::span<int32_t> out) const = 0;
};

}  // namespace triax::io

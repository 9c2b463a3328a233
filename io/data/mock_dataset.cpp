#include "io/data/mock_dataset.h"

#include <algorithm>

#include "base/error.h"
#include "base/philox.h"

namespace triax::io {

MockDataset::MockDataset(const Shape& shape)
    : shape_(shape), active_(static_cast<uint32_t>(std::min<int64_t>(shape.vocab_size, 256))) {
  ensure(shape.vocab_size > 0, "MockDataset: vocabulary is empty");
}

void MockDataset::sample(int64_t k, std::span<int32_t> out) const {
  ensure(k >= 0 && k < shape_.samples, "MockDataset::sample: no such sample");
  const PhiloxKey key{static_cast<uint32_t>(shape_.seed), static_cast<uint32_t>(shape_.seed >> 32)};
  const auto id = static_cast<uint64_t>(k);
  uint32_t token = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const PhiloxCounter words = philox4x32(
        {static_cast<uint32_t>(i), static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), 0x6d6f636bu}, key);
    const bool jump = i == 0 || (words[0] & 7u) == 0;
    token = jump ? words[1] % active_ : (5 * token + 17) % active_;
    out[i] = static_cast<int32_t>(token);
  }
}

}  // namespace triax::io

#include "io/data/blended_dataset.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <utility>

#include "base/error.h"
#include "io/data/blend.h"

namespace triax::io {

BlendedDataset::BlendedDataset(std::vector<std::unique_ptr<TokenDataset>> parts, const Order& order,
                               const IndexCache& cache)
    : parts_(std::move(parts)) {
  ensure(parts_.size() == order.weights.size(), "BlendedDataset: one weight per part");
  const std::vector<double> weights = normalise(order.weights);
  // The order depends on the bits of the weights and on nothing of the parts.
  std::string description = fmt::format("triax-blend-index-1\nsize {}\nweights", order.size);
  for (const double weight : weights) description += fmt::format(" {:016x}", std::bit_cast<uint64_t>(weight));
  description += "\n";
  files_ = cache.get({order.label + "-blend", description, {"dataset_index", "dataset_sample_index"}},
                     [&weights, &order](const IndexCache::Put& put) {
                       const BlendIndex index = build_blend_index(weights, order.size);
                       const std::array<int64_t, 1> shape{order.size};
                       put("dataset_index", npy_type<int16_t>(), std::as_bytes(std::span(index.dataset)), shape);
                       put("dataset_sample_index", npy_type<int64_t>(), std::as_bytes(std::span(index.sample)), shape);
                     });
  dataset_ = files_[0].values<int16_t>();
  sample_ = files_[1].values<int64_t>();
  if (dataset_.size() != sample_.size() || size() != order.size) {
    throw RunTimeError(
        fmt::format("{}: does not fit the other index file of its name; remove both, they will be built "
                    "again",
                    files_[0].path()));
  }
}

void BlendedDataset::sample(int64_t k, std::span<int32_t> out) const {
  ensure(k >= 0 && k < size(), "BlendedDataset::sample: no such sample");
  const auto at = static_cast<size_t>(k);
  const auto part = static_cast<size_t>(dataset_[at]);
  ensure(part < parts_.size(), "BlendedDataset::sample: the order is damaged");
  parts_[part]->sample(sample_[at], out);
}

}  // namespace triax::io

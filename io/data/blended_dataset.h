// Several datasets mixed by weight into one order of samples.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/data/index_cache.h"
#include "io/data/token_dataset.h"

namespace triax::io {

/// Sample k is sample `sample[k]` of dataset `dataset[k]`, by the greedy order of build_blend_index().
class BlendedDataset final : public TokenDataset {
 public:
  struct Order {
    std::string label;            ///< for the cache: "train", ...
    std::vector<double> weights;  ///< one per part, need not sum to 1
    int64_t size = 0;
  };
  /// Opens the order in the cache, building it there first when missing. Throws RunTimeError when a part is too small.
  BlendedDataset(std::vector<std::unique_ptr<TokenDataset>> parts, const Order& order, const IndexCache& cache);

  int64_t size() const override { return static_cast<int64_t>(dataset_.size()); }
  void sample(int64_t k, std::span<int32_t> out) const override;

 private:
  std::vector<std::unique_ptr<TokenDataset>> parts_;
  std::vector<NpyFile> files_;  // dataset, sample
  std::span<const int16_t> dataset_;
  std::span<const int64_t> sample_;
};

}  // namespace triax::io

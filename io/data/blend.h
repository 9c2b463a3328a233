// Mixing several datasets: parsing of `--data-path`, sizes per dataset, the greedy order (Megatron-LM's rules).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace triax::io {

/// Prefixes with weights as given, or no weights at all.
struct Blend {
  std::vector<std::string> prefixes;
  std::vector<double> weights;  ///< empty, or one per prefix
  bool operator==(const Blend&) const = default;
};

/// "P", "P1 P2 P3", or "w1 P1 w2 P2 ...": weights are taken when the count is even and every other word is a number.
/// Throws ConfigError for a mix of both, a negative or zero sum, and more than 32767 datasets. `option` is for the
/// text.
Blend parse_blend(const std::string& option, std::span<const std::string> words);

/// Words of a `--data-args-path` file: separated by blanks and line ends.
std::vector<std::string> read_data_args(const std::string& path);

/// w / sum(w) in fp64.
std::vector<double> normalise(std::span<const double> weights);

/// Samples to use of a dataset: ceil(N w).
int64_t blend_target(int64_t num_samples, double weight);
/// Samples to build of a dataset: ceil(ceil(N w) * 1.005).
int64_t blend_request(int64_t num_samples, double weight);

struct BlendIndex {
  std::vector<int16_t> dataset;  ///< [size]
  std::vector<int64_t> sample;   ///< [size] sample inside that dataset
};
/// Step i takes the dataset with the largest w_d * max(i, 1) - count_d; the first of equals wins. Normalised weights.
BlendIndex build_blend_index(std::span<const double> weights, int64_t size);

}  // namespace triax::io

#include "io/data/blend.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "base/error.h"

namespace triax::io {

namespace {

std::optional<double> number(const std::string& word) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (end == word.c_str() || *end != 0) return std::nullopt;
  return value;
}

// numpy.sum of fp64: eight running sums for up to 128 values, halves above; the order decides the last bit of a weight.
double pairwise_sum(std::span<const double> values) {
  const size_t n = values.size();
  if (n < 8) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  }
  if (n > 128) {
    const size_t half = n / 2 - (n / 2) % 8;
    return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
  }
  double lane[8];
  std::copy_n(values.begin(), 8, lane);
  size_t i = 8;
  for (; i < n - n % 8; i += 8) {
    for (size_t j = 0; j < 8; ++j) lane[j] += values[i + j];
  }
  double sum = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
  for (; i < n; ++i) sum += values[i];
  return sum;
}

}  // namespace

Blend parse_blend(const std::string& option, std::span<const std::string> words) {
  Blend blend;
  if (words.empty()) throw ConfigError(fmt::format("{}: needs at least one dataset prefix", option));
  size_t weights = 0;
  if (words.size() % 2 == 0) {
    for (size_t i = 0; i < words.size(); i += 2) weights += number(words[i]).has_value() ? 1 : 0;
  }
  if (weights == 0) {
    blend.prefixes.assign(words.begin(), words.end());
  } else if (2 * weights != words.size()) {
    throw ConfigError(fmt::format("{} {}: weights and prefixes must alternate (w1 P1 w2 P2 ...), or no weight be given",
                                  option, fmt::join(words, " ")));
  }
  double sum = 0;
  for (size_t i = 0; i < 2 * weights; i += 2) {
    const double weight = *number(words[i]);
    if (!std::isfinite(weight) || weight < 0) {
      throw ConfigError(
          fmt::format("{}: weight {} of {} must be a number of at least 0", option, words[i], words[i + 1]));
    }
    blend.weights.push_back(weight);
    blend.prefixes.push_back(words[i + 1]);
    sum += weight;
  }
  if (weights > 0 && sum <= 0) throw ConfigError(fmt::format("{}: at least one weight must be above 0", option));
  if (blend.prefixes.size() > static_cast<size_t>(std::numeric_limits<int16_t>::max())) {
    throw ConfigError(fmt::format("{}: {} datasets are more than 32767", option, blend.prefixes.size()));
  }
  return blend;
}

std::vector<std::string> read_data_args(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw ConfigError(fmt::format("--data-args-path {}: cannot be read; give a text file of dataset prefixes", path));
  std::vector<std::string> words;
  for (std::string word; file >> word;) words.push_back(word);
  return words;
}

std::vector<double> normalise(std::span<const double> weights) {
  const double sum = pairwise_sum(weights);
  std::vector<double> shares(weights.begin(), weights.end());
  for (double& share : shares) share /= sum;
  return shares;
}

int64_t blend_target(int64_t num_samples, double weight) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(num_samples) * weight));
}

int64_t blend_request(int64_t num_samples, double weight) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(blend_target(num_samples, weight)) * 1.005));
}

BlendIndex build_blend_index(std::span<const double> weights, int64_t size) {
  BlendIndex index;
  index.dataset.resize(static_cast<size_t>(size));
  index.sample.resize(static_cast<size_t>(size));
  std::vector<int64_t> count(weights.size(), 0);
  for (size_t i = 0; i < index.dataset.size(); ++i) {
    const auto step = static_cast<double>(std::max<size_t>(i, 1));
    size_t best = 0;
    double largest = weights[0] * step - static_cast<double>(count[0]);
    for (size_t d = 1; d < weights.size(); ++d) {
      const double deficit = weights[d] * step - static_cast<double>(count[d]);
      if (deficit > largest) {
        largest = deficit;
        best = d;
      }
    }
    index.dataset[i] = static_cast<int16_t>(best);
    index.sample[i] = count[best]++;
  }
  return index;
}

}  // namespace triax::io

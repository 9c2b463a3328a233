#include "io/data/gpt_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "io/data/blend.h"

namespace triax::io {

const char* name_of(Split split) {
  switch (split) {
    case Split::Train:
      return "train";
    case Split::Valid:
      return "valid";
    case Split::Test:
      return "test";
  }
  return "unknown";
}

std::array<SequenceRange, 3> split_sequences(const std::string& split, int64_t sequences) {
  const auto refuse = [&split]() {
    throw ConfigError(
        fmt::format("--split {}: must be one to three weights of training, validation and test, none negative "
                    "and not all 0, such as 969,30,1",
                    split));
  };
  std::array<double, 3> weights{0, 0, 0};
  const char* at = split.c_str();
  for (size_t i = 0;; ++i) {
    char* end = nullptr;
    const double weight = std::strtod(at, &end);
    if (i == 3 || end == at || !std::isfinite(weight) || weight < 0 || (*end != 0 && *end != ',' && *end != '/'))
      refuse();
    weights[i] = weight;
    if (*end == 0) break;
    at = end + 1;
  }
  if (weights[0] + weights[1] + weights[2] <= 0) refuse();
  const std::vector<double> shares = normalise(weights);
  std::array<SequenceRange, 3> ranges;
  double from = 0;
  for (size_t i = 0; i < 3; ++i) {
    const double to = from + shares[i];
    const auto bound = [sequences](double x) {
      return std::min(sequences,
                      static_cast<int64_t>(std::nearbyint(std::min(x, 1.0) * static_cast<double>(sequences))));
    };
    ranges[i] = {bound(from), bound(to)};
    from = to;
  }
  return ranges;
}

EpochPlan plan_epochs(int64_t tokens_per_epoch, int64_t num_samples, int64_t seq_length) {
  ensure(seq_length > 0, "plan_epochs: sequence length must be positive");
  const int64_t t = tokens_per_epoch;
  EpochPlan plan;
  plan.tokens_per_epoch = t;
  if (t <= 0) return plan;
  if (num_samples > 0) plan.epochs = std::max<int64_t>(1, (num_samples * seq_length + 1 + t - 1) / t);
  plan.samples = (plan.epochs * t - 1) / seq_length;
  if (plan.epochs == 1) return plan;
  plan.samples_before_last_epoch = ((plan.epochs - 1) * t - 1) / seq_length;
  const int64_t samples_per_epoch = (t - 1) / seq_length;
  const int64_t needed = num_samples - plan.samples_before_last_epoch;
  plan.separate_last_epoch = needed < static_cast<int64_t>(0.80 * static_cast<double>(samples_per_epoch));
  return plan;
}

std::vector<int32_t> build_document_index(SequenceRange sequences, const EpochPlan& plan, NumpyRandom& random) {
  ensure(sequences.end <= std::numeric_limits<int32_t>::max(), "build_document_index: more than 2^31-1 sequences");
  const auto per_epoch = static_cast<size_t>(sequences.size());
  std::vector<int32_t> index(per_epoch * static_cast<size_t>(plan.epochs));
  for (size_t epoch = 0; epoch < static_cast<size_t>(plan.epochs); ++epoch) {
    const auto begin = index.begin() + static_cast<std::ptrdiff_t>(epoch * per_epoch);
    std::iota(begin, begin + static_cast<std::ptrdiff_t>(per_epoch), static_cast<int32_t>(sequences.begin));
  }
  const size_t together = index.size() - (plan.separate_last_epoch ? per_epoch : 0);
  random.shuffle(std::span(index).first(together));
  random.shuffle(std::span(index).subspan(together));
  return index;
}

template <class T>
std::vector<T> build_sample_index(std::span<const int32_t> document_index, std::span<const int32_t> lengths,
                                  const EpochPlan& plan, int64_t seq_length) {
  std::vector<T> index(2 * static_cast<size_t>(plan.samples + 1));
  size_t document = 0;
  int64_t offset = 0;
  for (size_t k = 1; k <= static_cast<size_t>(plan.samples); ++k) {
    // s + 1 tokens from (document, offset); the position of the last of them starts the next sample.
    int64_t remaining = seq_length + 1;
    for (;;) {
      const int64_t available = lengths[static_cast<size_t>(document_index[document])] - offset;
      if (available >= remaining) break;
      remaining -= available;
      ++document;
      offset = 0;
    }
    offset += remaining - 1;
    index[2 * k] = static_cast<T>(document);
    index[2 * k + 1] = static_cast<T>(offset);
  }
  return index;
}

template <class T>
std::vector<T> build_shuffle_index(const EpochPlan& plan, NumpyRandom& random) {
  std::vector<T> index(static_cast<size_t>(plan.samples));
  std::iota(index.begin(), index.end(), T{0});
  const size_t together = plan.separate_last_epoch ? static_cast<size_t>(plan.samples_before_last_epoch) : index.size();
  random.shuffle(std::span(index).first(together));
  random.shuffle(std::span(index).subspan(together));
  return index;
}

template std::vector<int32_t> build_sample_index(std::span<const int32_t>, std::span<const int32_t>, const EpochPlan&,
                                                 int64_t);
template std::vector<int64_t> build_sample_index(std::span<const int32_t>, std::span<const int32_t>, const EpochPlan&,
                                                 int64_t);
template std::vector<uint32_t> build_shuffle_index(const EpochPlan&, NumpyRandom&);
template std::vector<int64_t> build_shuffle_index(const EpochPlan&, NumpyRandom&);

}  // namespace triax::io

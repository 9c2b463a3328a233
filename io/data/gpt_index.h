// From documents to samples: Megatron-LM's document, sample and shuffle index, as pure functions, equal to the bit.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/data/numpy_random.h"

namespace triax::io {

enum class Split : uint8_t { Train = 0, Valid = 1, Test = 2 };
/// "train", "valid", "test".
const char* name_of(Split split);

struct SequenceRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const SequenceRange&) const = default;
};

/// Sequences of each split: "969,30,1" -> weights, normalised, cumulated; bounds rounded half to even as Python's
/// round(). Missing trailing weights are 0. Throws ConfigError for what is not one to three non-negative numbers with
/// a sum above 0.
std::array<SequenceRange, 3> split_sequences(const std::string& split, int64_t sequences);

/// How often the data is walked, and whether the last pass is shuffled by itself.
struct EpochPlan {
  int64_t tokens_per_epoch = 0;           ///< T
  int64_t epochs = 1;                     ///< E: smallest with E * T >= num_samples * s + 1
  int64_t samples = 0;                    ///< N = (E * T - 1) / s, 0 if T is 0
  int64_t samples_before_last_epoch = 0;  ///< ((E - 1) * T - 1) / s
  bool separate_last_epoch = false;       ///< E > 1 and fewer than 80 % of the last pass are needed
  bool operator==(const EpochPlan&) const = default;
};
/// num_samples < 0: one epoch.
EpochPlan plan_epochs(int64_t tokens_per_epoch, int64_t num_samples, int64_t seq_length);

/// [E * sequences] sequence ids: E copies shuffled together, or E - 1 together and then the last.
std::vector<int32_t> build_document_index(SequenceRange sequences, const EpochPlan& plan, NumpyRandom& random);

/// Start of a sample: position in the document index and token offset inside that sequence.
struct SamplePosition {
  int64_t document = 0;
  int64_t offset = 0;
  bool operator==(const SamplePosition&) const = default;
};

/// [N + 1][2] (position in the document index, token offset inside that sequence): each sample takes s + 1 tokens and
/// the next starts at the last one. lengths[sequence] = its tokens. T is int32_t, or int64_t when the document index
/// has more than 2^31 - 1 entries.
template <class T>
std::vector<T> build_sample_index(std::span<const int32_t> document_index, std::span<const int32_t> lengths,
                                  const EpochPlan& plan, int64_t seq_length);

/// [N]: 0 .. N-1 shuffled; the first samples_before_last_epoch and the rest apart when the last epoch is separate.
/// T is uint32_t, or int64_t from 2^32 - 2 samples on (Megatron's rule).
template <class T>
std::vector<T> build_shuffle_index(const EpochPlan& plan, NumpyRandom& random);

}  // namespace triax::io

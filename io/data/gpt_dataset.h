// One indexed dataset cut into samples of s + 1 tokens by Megatron-LM's document, sample and shuffle index.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "io/data/gpt_index.h"
#include "io/data/index_cache.h"
#include "io/data/indexed_dataset.h"
#include "io/data/token_dataset.h"

namespace triax::io {

/// What decides the samples of one split of one dataset.
struct GptSplit {
  Split split = Split::Train;
  SequenceRange sequences;   ///< of the indexed dataset
  int64_t num_samples = -1;  ///< at least this many; -1: one epoch
  int64_t seq_length = 0;
  uint32_t seed = 0;
  int64_t vocab_size = 0;  ///< bound of every token read; 0: unchecked
};

/// Sample k -> j = shuffle[k] -> the tokens between positions sample[j] and sample[j + 1], the latter's token included.
class GptDataset final : public TokenDataset {
 public:
  /// Opens the three indices in the cache, building them there first when they are missing. The split must hold tokens.
  GptDataset(std::shared_ptr<const IndexedDataset> data, const GptSplit& split, const IndexCache& cache);

  int64_t size() const override { return samples_; }
  void sample(int64_t k, std::span<int32_t> out) const override;

 private:
  SamplePosition position(int64_t j) const;

  std::shared_ptr<const IndexedDataset> data_;  // shared by the splits of a run
  GptSplit split_;
  std::vector<NpyFile> files_;  // document, sample, shuffle
  std::span<const int32_t> document_;
  std::variant<std::span<const int32_t>, std::span<const int64_t>> position_;
  std::variant<std::span<const uint32_t>, std::span<const int64_t>> shuffle_;
  int64_t samples_ = 0;
};

/// Tokens of a range of sequences.
int64_t count_tokens(const IndexedDataset& data, SequenceRange sequences);

}  // namespace triax::io

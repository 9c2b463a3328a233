// What a run reads: descriptions and tokenizer first (they decide the vocabulary), datasets later.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/process_grid.h"
#include "io/data/dataset_builder.h"
#include "io/run_options.h"
#include "io/tokenizer/tokenizer.h"

namespace triax::train {

/// What the data's descriptions and the tokenizer options say. Reads `<prefix>.json` files and the tokenizer, no
/// tokens.
struct DataFacts {
  int64_t vocab_size = 0;  ///< --vocab-size, else the preset's, else the tokenizer's
  std::optional<int32_t> eod;
  std::shared_ptr<const io::Tokenizer>
      tokenizer;  ///< null: mock data, or data without a description and no --tokenizer-*
  io::TokenizerOptions tokenizer_options;
  std::string tokenizer_hash;
  std::string data_hash;  ///< 16 hex digits over the descriptions; empty for mock data
};

/// Throws ConfigError: data without description needs --vocab-size or --tokenizer-type; data of two tokenizers cannot
/// be mixed; a given tokenizer must be the one that made the data; --eod-mask-loss needs an end-of-document token.
DataFacts inspect_data(const io::RunOptions& options);

/// Bytes of text that each token stands for: 0 for the end of document; a byte-fallback token 1.
std::vector<int32_t> token_bytes(const io::Tokenizer& tokenizer, std::optional<int32_t> eod);

/// Builds index files (rank 0 first, then one rank per node) and opens the splits on the ranks that hold tokens.
/// Collective over world. Sample counts follow train_iters and evaluation options; with --skip-train only `valid` and
/// `test` count.
io::Datasets open_data(const io::RunOptions& options, const std::string& run_dir, bool holds_tokens,
                       comm::ProcessGrid& grid);

/// Which splits have samples, on some rank; the same on all ranks. Collective over world.
struct Splits {
  bool train = false, valid = false, test = false;
};
Splits splits_of(const io::Datasets& datasets, comm::ProcessGrid& grid);

}  // namespace triax::train

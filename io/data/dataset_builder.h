// Makes the training, validation and test dataset of a run from its data options.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/data/gpt_index.h"
#include "io/data/sampler.h"
#include "io/data/token_dataset.h"

namespace triax::io {

/// What decides the samples of a run. Paths are words as typed after the option of that name.
struct DatasetRequest {
  std::vector<std::string> data_path;                                         ///< one blend for all splits
  std::vector<std::string> train_data_path, valid_data_path, test_data_path;  ///< or one per split
  std::string split = "969,30,1";                                             ///< only with data_path
  std::string cache_path;                                                     ///< --data-cache-path
  std::string run_dir;                                                        ///< where indices go without a cache path
  bool mock = false;
  SampleCounts samples;
  int64_t seq_length = 0;
  int64_t vocab_size = 0;  ///< before padding
  uint32_t seed = 1234;
};

/// A null pointer: the split is empty (weight 0, or no sequence falls into it) or no samples were asked of it.
struct Datasets {
  std::unique_ptr<TokenDataset> train, valid, test;
};

/// Every fault of the request that can be found without opening data; throws ConfigError with all of them.
void validate(const DatasetRequest& request);

/// Where indices are kept: cache_path; else `<first prefix>.cache` when that directory is the caller's own and
/// writable; else `<run_dir>/data-cache`.
std::string index_cache_directory(const DatasetRequest& request);

/// Builds the index files that are missing, and returns. Logs a heartbeat every 10 s. Safe when several processes do
/// it at once (each writes its own temporary file, renames, verifies). Run it on world rank 0 and then, after a
/// barrier, on one rank per node (which builds nothing if the directory is shared).
void prepare_datasets(const DatasetRequest& request);

/// Opens prepared data; maps files, builds nothing but what prepare_datasets left out. Call it after a further
/// barrier, on the ranks that need tokens (first and last pipeline stage). An empty training split is a ConfigError.
Datasets open_datasets(const DatasetRequest& request);

}  // namespace triax::io

// What a weights file says about itself: attributes of the root group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "io/tokenizer/tokenizer.h"
#include "io/weights/hdf5.h"
#include "model/config.h"

namespace triax::io {

struct WeightsHeader {
  model::ModelConfig model;
  DType dtype = DType::Float32;  ///< of the stored tensors
  int64_t iteration = 0;
  int64_t consumed_samples = 0;
  std::string tokenizer_hash;  ///< Tokenizer::hash(); empty: the run had no tokenizer (mock data)
  TokenizerOptions tokenizer;  ///< how to open it again
};

/// What differs between the model of a file and that of a run and would give its tensors another meaning, such as
/// "num_attention_heads 4 in the file, 2 in the run". Dropout, sequence length and names may differ.
std::vector<std::string> architecture_differences(const model::ModelConfig& file, const model::ModelConfig& run);

/// Attributes "format" = "triax-weights", "version" = 1, "dtype", "iteration", "consumed_samples", "tokenizer.*" and
/// one "model.*" for each field of the configuration: strings, 64-bit integers (also for yes and no: 1, 0), doubles.
void write_header(hid_t file, const WeightsHeader& header);
/// Throws RunTimeError for another format, a newer version, or a missing attribute (by name).
WeightsHeader read_header(hid_t file, const std::string& path);
/// The same without "format" and "version".
void write_model_header(hid_t file, const WeightsHeader& header);
WeightsHeader read_model_header(hid_t file, const std::string& path);

}  // namespace triax::io

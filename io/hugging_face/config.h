// config.json of Hugging Face's transformers, for the two families that are computed here: GPT-2 and Llama.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "model/config.h"

namespace triax::io {

enum class HubFamily { Gpt2, Llama };

struct HubConfig {
  HubFamily family = HubFamily::Llama;
  model::ModelConfig model;  ///< seq_length is the longest that the model takes
  std::string torch_dtype;   ///< "float32", "bfloat16", ...; empty: not said
};

/// The model of a config.json's text. Every key that changes what is computed is honoured or refused by name (RoPE
/// scaling, sliding windows, mixtures of experts, other activations, quantised weights, ...); keys that do not change
/// it are skipped; a key that is not known and not null, false or 0 is refused, since it could. Throws ConfigError with
/// all faults in one message; `path` is for the text.
HubConfig parse_hub_config(const std::string& text, const std::string& path);

/// The family that computes exactly what `config` says. Throws ConfigError naming what neither can express.
HubFamily hub_family(const model::ModelConfig& config);

/// Token ids that generation in transformers needs; -1: none.
struct HubTokens {
  int32_t bos = -1, eos = -1;
};
/// Text of a config.json that transformers reads.
std::string hub_config_text(const model::ModelConfig& config, DType dtype, const HubTokens& tokens);

}  // namespace triax::io

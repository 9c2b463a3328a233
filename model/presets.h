// Named models: GPT-2, GPT-3, Llama 2 and 3, Megatron's Table 1 (Narayanan et al. 2021, arXiv 2104.04473), test models.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace triax::model {

struct Preset {
  ModelConfig config;
  std::string description;  ///< source and the paper's layout where there is one
};

/// All presets in the order of --list-models.
const std::vector<Preset>& presets();
/// nullptr when there is none of that name.
const Preset* find_preset(const std::string& name);
/// One line per preset: name, parameters, shape.
std::string list_presets();

/// Megatron's default width of the MLP: 4h, SwiGLU int(4h * 2 / 3 / 64) * 64.
int64_t default_ffn_hidden_size(int64_t hidden_size, ActivationType activation);

}  // namespace triax::model

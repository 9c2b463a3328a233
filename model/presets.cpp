#include "model/presets.h"

#include <fmt/format.h>

#include "model/counts.h"

namespace triax::model {
namespace {

// GPT-2 (Radford et al. 2019) and GPT-3 (Brown et al. 2020, arXiv 2005.14165, table 2.1).
ModelConfig gpt(const std::string& name, int64_t layers, int64_t hidden, int64_t heads, int64_t seq, int64_t vocab) {
  ModelConfig config;
  config.name = name;
  config.num_layers = layers;
  config.hidden_size = hidden;
  config.ffn_hidden_size = 4 * hidden;
  config.num_attention_heads = config.num_query_groups = heads;
  config.kv_channels = hidden / heads;
  config.seq_length = config.max_position_embeddings = seq;
  config.vocab_size = vocab;
  return config;
}

struct LlamaShape {
  int64_t layers, hidden, ffn, heads, groups, seq, vocab;
  double rotary_base = 10000;
};

ModelConfig llama(const std::string& name, const LlamaShape& shape) {
  ModelConfig config = gpt(name, shape.layers, shape.hidden, shape.heads, shape.seq, shape.vocab);
  config.ffn_hidden_size = shape.ffn;
  config.num_query_groups = shape.groups;
  config.norm = NormType::RMSNorm;
  config.activation = ActivationType::SwiGlu;
  config.position = PositionType::Rope;
  config.rotary_base = shape.rotary_base;
  config.add_bias_linear = config.add_qkv_bias = false;
  config.tie_embeddings = false;
  config.hidden_dropout = config.attention_dropout = 0;
  return config;
}

// Narayanan et al. 2021 (arXiv 2104.04473), table 1: vocabulary 51200, sequence 2048.
Preset table1(const std::string& name, int64_t layers, int64_t hidden, int64_t heads, const char* layout) {
  return {gpt("megatron-" + name, layers, hidden, heads, 2048, 51200), fmt::format("Megatron table 1, {}", layout)};
}

// The two test models of the parity matrix: four layers, a prime vocabulary, everything that can go wrong.
ModelConfig t0() { return gpt("t0", 4, 64, 4, 32, 101); }
ModelConfig t1() {
  ModelConfig config = llama("t1", {4, 64, 176, 4, 2, 32, 101});
  config.hidden_dropout = config.attention_dropout = 0.1;
  return config;
}

std::vector<Preset> make_presets() {
  return {
      {llama("demo", {4, 192, 512, 6, 6, 256, 2048}), "small enough to train in minutes on two cores"},
      {llama("llama-10m", {6, 320, 832, 5, 5, 256, 8192}), "12.5M, for measurements on a laptop"},
      {gpt("gpt2-124m", 12, 768, 12, 1024, 50257), "GPT-2 small"},
      {gpt("gpt2-350m", 24, 1024, 16, 1024, 50257), "GPT-2 medium"},
      {gpt("gpt2-774m", 36, 1280, 20, 1024, 50257), "GPT-2 large"},
      {gpt("gpt2-1.5b", 48, 1600, 25, 1024, 50257), "GPT-2 XL"},
      {gpt("gpt3-175b", 96, 12288, 96, 2048, 50257), "GPT-3"},
      {llama("llama2-7b", {32, 4096, 11008, 32, 32, 4096, 32000}), "Llama 2 7B"},
      {llama("llama2-13b", {40, 5120, 13824, 40, 40, 4096, 32000}), "Llama 2 13B"},
      {llama("llama2-70b", {80, 8192, 28672, 64, 8, 4096, 32000}), "Llama 2 70B"},
      {llama("llama3-8b", {32, 4096, 14336, 32, 8, 8192, 128256, 500000}), "Llama 3 8B"},
      {llama("llama3-70b", {80, 8192, 28672, 64, 8, 8192, 128256, 500000}), "Llama 3 70B"},
      table1("1.7b", 24, 2304, 24, "tp 1 pp 1, micro-batch 16, global batch 512, 32 GPUs"),
      table1("3.6b", 30, 3072, 32, "tp 2 pp 1, micro-batch 16, global batch 512, 64 GPUs"),
      table1("7.5b", 36, 4096, 32, "tp 4 pp 1, micro-batch 16, global batch 512, 128 GPUs"),
      table1("18b", 40, 6144, 48, "tp 8 pp 1, micro-batch 8, global batch 1024, 256 GPUs"),
      table1("39b", 48, 8192, 64, "tp 8 pp 2, micro-batch 4, global batch 1536, 512 GPUs"),
      table1("76b", 60, 10240, 80,
             "tp 8 pp 4, 5 layers per virtual stage, micro-batch 2, global batch 1792, 1024 GPUs"),
      table1("145b", 80, 12288, 96,
             "tp 8 pp 8, 5 layers per virtual stage, micro-batch 2, global batch 2304, 1536 GPUs"),
      table1("310b", 96, 16384, 128,
             "tp 8 pp 16, 3 layers per virtual stage, micro-batch 1, global batch 2160, 1920 GPUs"),
      table1("530b", 105, 20480, 128,
             "tp 8 pp 35, 1 layer per virtual stage, micro-batch 1, global batch 2520, 2520 GPUs"),
      table1("1t", 128, 25600, 160, "tp 8 pp 64, micro-batch 1, global batch 3072, 3072 GPUs"),
      {t0(), "test model: GELU, LayerNorm, learned positions, tied"},
      {t1(), "test model: SwiGLU, RMSNorm, RoPE, 2 KV heads, untied"},
  };
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = make_presets();
  return all;
}

const Preset* find_preset(const std::string& name) {
  for (const Preset& preset : presets()) {
    if (preset.config.name == name) return &preset;
  }
  return nullptr;
}

std::string list_presets() {
  std::string text = fmt::format("{:<14} {:>10} {:>6} {:>7} {:>7} {:>6} {:>4} {:>6} {:>7}  {}\n", "name", "parameters",
                                 "layers", "hidden", "ffn", "heads", "kv", "seq", "vocab", "what");
  for (const Preset& preset : presets()) {
    const ModelConfig& c = preset.config;
    const auto count = static_cast<double>(parameter_count(c));
    const std::string size = count >= 1e9 ? fmt::format("{:.2f}B", count / 1e9) : fmt::format("{:.2f}M", count / 1e6);
    text += fmt::format("{:<14} {:>10} {:>6} {:>7} {:>7} {:>6} {:>4} {:>6} {:>7}  {}\n", c.name, size, c.num_layers,
                        c.hidden_size, c.ffn_hidden_size, c.num_attention_heads, c.num_query_groups, c.seq_length,
                        c.vocab_size, preset.description);
  }
  return text;
}

int64_t default_ffn_hidden_size(int64_t hidden_size, ActivationType activation) {
  return activation == ActivationType::SwiGlu ? hidden_size * 4 * 2 / 3 / 64 * 64 : 4 * hidden_size;
}

}  // namespace triax::model

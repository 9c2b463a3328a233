// The shape of a GPT- or Llama-style transformer; every dimension, nothing about ranks.
#pragma once

#include <cstdint>
#include <string>

namespace triax::model {

enum class NormType { LayerNorm, RMSNorm };
enum class ActivationType { Gelu, SwiGlu };
enum class PositionType { Learned, Rope, None };

struct ModelConfig {
  std::string name = "custom";
  int64_t num_layers = 0;           ///< L
  int64_t hidden_size = 0;          ///< h
  int64_t ffn_hidden_size = 0;      ///< f
  int64_t num_attention_heads = 0;  ///< a
  int64_t num_query_groups = 0;     ///< k, KV heads; equals a without GQA
  int64_t kv_channels = 0;          ///< d, head dimension; usually h / a
  int64_t max_position_embeddings = 0;
  int64_t seq_length = 0;  ///< s
  int64_t vocab_size = 0;  ///< V, true number of token ids; padding is added per layout
  int64_t make_vocab_size_divisible_by = 128;
  NormType norm = NormType::LayerNorm;
  ActivationType activation = ActivationType::Gelu;
  PositionType position = PositionType::Learned;
  double rotary_base = 10000;
  double rotary_percent = 1.0;
  bool add_bias_linear = true;  ///< biases of proj, fc1, fc2
  bool add_qkv_bias = true;     ///< biases of q, k, v
  bool tie_embeddings = true;   ///< head shares the word embedding
  double norm_epsilon = 1e-5;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  double init_method_std = 0.02;  ///< output projections (proj, fc2): std / sqrt(2 L)

  int64_t query_size() const { return num_attention_heads * kv_channels; }
  int64_t kv_size() const { return num_query_groups * kv_channels; }
  /// Rows of the embedding once padded: the next multiple of make_vocab_size_divisible_by * tp.
  int64_t padded_vocab_size(int64_t tensor_parallel) const {
    const int64_t multiple = make_vocab_size_divisible_by * tensor_parallel;
    return (vocab_size + multiple - 1) / multiple * multiple;
  }
  bool operator==(const ModelConfig&) const = default;
};

}  // namespace triax::model

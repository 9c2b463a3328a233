#include "model/counts.h"

#include <algorithm>
#include <cmath>

namespace triax::model {
namespace {

int64_t norm_parameters(const ModelConfig& c) { return c.hidden_size * (c.norm == NormType::LayerNorm ? 2 : 1); }

int64_t position_parameters(const ModelConfig& c) {
  return c.position == PositionType::Learned ? c.max_position_embeddings * c.hidden_size : 0;
}

// Columns of fc1: gate and up of SwiGLU are two projections.
int64_t up_columns(const ModelConfig& c) {
  return c.activation == ActivationType::SwiGlu ? 2 * c.ffn_hidden_size : c.ffn_hidden_size;
}

// One layer on one of t tensor ranks. Column-parallel biases are cut with their columns, row-parallel ones replicated.
int64_t layer_parameters_of_rank(const ModelConfig& c, int64_t t) {
  const int64_t h = c.hidden_size;
  const int64_t q = c.query_size() / t;
  const int64_t kv = std::max<int64_t>(c.num_query_groups / t, 1) * c.kv_channels;
  const int64_t up = up_columns(c) / t;
  int64_t count = h * (q + 2 * kv) + q * h + h * up + c.ffn_hidden_size / t * h + 2 * norm_parameters(c);
  if (c.add_qkv_bias) count += q + 2 * kv;
  if (c.add_bias_linear) count += h + up + h;
  return count;
}

}  // namespace

int64_t layer_parameters(const ModelConfig& config) { return layer_parameters_of_rank(config, 1); }

int64_t parameter_count(const ModelConfig& config) {
  const int64_t embedding = config.vocab_size * config.hidden_size;
  return config.num_layers * layer_parameters(config) + embedding * (config.tie_embeddings ? 1 : 2) +
         position_parameters(config) + norm_parameters(config);
}

int64_t rank_parameters(const ModelConfig& config, int tensor_parallel, const parallel::LayerMap& layers,
                        int position) {
  int64_t count = 0;
  for (int chunk = 0; chunk < layers.chunks; ++chunk) {
    count += layers.layers(position, chunk).size() * layer_parameters_of_rank(config, tensor_parallel);
  }
  const int64_t embedding = config.padded_vocab_size(tensor_parallel) / tensor_parallel * config.hidden_size;
  const bool first = position == layers.position_of(0);
  const bool last = position == layers.position_of(layers.num_virtual_stages() - 1);
  if (first) count += embedding + position_parameters(config);
  if (last) count += norm_parameters(config);
  if (last && !(first && config.tie_embeddings)) count += embedding;
  return count;
}

StepFlops step_flops(const ModelConfig& config, int64_t global_batch, int64_t padded_vocab, AttentionCount attention,
                     parallel::RecomputeGranularity granularity, int64_t recomputed) {
  const auto h = static_cast<double>(config.hidden_size);
  const auto q = static_cast<double>(config.query_size());
  const auto s = static_cast<double>(config.seq_length);
  const double tokens = static_cast<double>(global_batch) * s;
  const auto layers = static_cast<double>(config.num_layers);
  const double gemms = 2 * h * q + 2 * h * static_cast<double>(config.kv_size()) +
                       h * static_cast<double>(up_columns(config) + config.ffn_hidden_size);
  const double core = 4 * tokens * s * q * (attention == AttentionCount::CausalHalf ? 0.5 : 1.0);
  const double layer_forward = 2 * tokens * gemms + core;
  StepFlops flops;
  flops.model = 3 * (layers * layer_forward + 2 * tokens * h * static_cast<double>(padded_vocab));
  flops.hardware = flops.model;
  if (granularity == parallel::RecomputeGranularity::Full) {
    flops.hardware += static_cast<double>(recomputed) * layer_forward;
  }
  if (granularity == parallel::RecomputeGranularity::Selective) flops.hardware += layers * core;
  return flops;
}

double expected_first_loss(const ModelConfig& config) {
  const double sigma = config.init_method_std;
  return std::log(static_cast<double>(config.vocab_size)) + static_cast<double>(config.hidden_size) * sigma * sigma / 2;
}

int64_t recomputed_layers(const parallel::Recompute& recompute, const parallel::LayerMap& layers) {
  if (recompute.granularity != parallel::RecomputeGranularity::Full) return 0;
  int64_t count = 0;
  for (const parallel::LayerRange& range : layers.stage_layers) {
    count += recompute.method == parallel::RecomputeMethod::Uniform ? range.size()
                                                                    : std::min(recompute.num_layers, range.size());
  }
  return count;
}

}  // namespace triax::model

#include "model/memory_formulas.h"

#include <algorithm>

#include "model/counts.h"

namespace triax::model {
namespace {

using parallel::Op;
using parallel::RecomputeGranularity;
using parallel::RecomputeMethod;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Tokens of a rank's part of a [s, b, h] activation outside of the tensor-parallel regions.
int64_t local_tokens(const ModelConfig& c, const ActivationShape& s) {
  const int64_t tokens = c.seq_length * s.micro_batch;
  return s.sequence_parallel == parallel::SequenceParallel::Yes ? tokens / s.tensor_parallel : tokens;
}

/// One [s, b, h] tensor as it travels between layers and stages.
int64_t hidden_bytes(const ModelConfig& c, const ActivationShape& s) {
  return s.element_bytes * local_tokens(c, s) * c.hidden_size;
}

/// Layers' activations of one chunk; `working` is what recomputation adds.
void add_layers(const LayerActivations& layer, int64_t checkpoint, const parallel::Recompute& r, int64_t count,
                ChunkActivations& chunk) {
  if (r.granularity == RecomputeGranularity::None) {
    chunk.layers = count * layer.total();
  } else if (r.granularity == RecomputeGranularity::Selective) {
    chunk.layers = count * (layer.total() - layer.scores);
    chunk.working = count > 0 ? layer.scores : 0;
  } else if (r.method == RecomputeMethod::Uniform) {
    const int64_t group = std::max<int64_t>(r.num_layers, 1);
    chunk.layers = ceil_div(count, group) * checkpoint;
    chunk.working = std::min(group, count) * layer.total();
  } else {
    const int64_t again = std::min(r.num_layers, count);
    chunk.layers = again * checkpoint + (count - again) * layer.total();
    chunk.working = again > 0 ? layer.total() : 0;
  }
}

/// Largest of embedding, layer and head on one of t ranks: what stage 3 gathers at once.
int64_t largest_unit(const ModelConfig& c, int tensor, const parallel::LayerMap& layers, int position) {
  // A map of one stage with one layer less tells what a layer and the ends hold.
  parallel::LayerMap one;
  one.stage_layers = {{0, 1}};
  parallel::LayerMap none = one;
  none.stage_layers = {{0, 0}};
  const int64_t layer = rank_parameters(c, tensor, one, 0) - rank_parameters(c, tensor, none, 0);
  const int64_t word = c.padded_vocab_size(tensor) / tensor * c.hidden_size;
  const bool ends =
      position == layers.position_of(0) || position == layers.position_of(layers.num_virtual_stages() - 1);
  return std::max(layer, ends ? word : 0);
}

}  // namespace

StateBytes state_bytes(int64_t parameters, const StateWidths& widths, const ZeroSharding& zero) {
  const int64_t cut = ceil_div(parameters, zero.shard_group);
  StateBytes bytes;
  bytes.weights = widths.weights * parameters;
  bytes.gradients = widths.gradients * (zero.stage >= 2 ? cut : parameters);
  bytes.optimizer = widths.optimizer * (zero.stage >= 1 ? cut : parameters);
  if (zero.stage >= 1) bytes.padding_elements = cut * zero.shard_group - parameters;
  if (zero.stage == 3) {
    const int64_t group = zero.parameter_group > 0 ? zero.parameter_group : zero.shard_group;
    bytes.weights = widths.weights * ceil_div(parameters, group);
  }
  return bytes;
}

LayerActivations layer_activations(const ModelConfig& c, const ActivationShape& shape) {
  const int64_t e = shape.element_bytes;
  const int64_t t = shape.tensor_parallel;
  const int64_t tokens = c.seq_length * shape.micro_batch;
  const int64_t heads = c.num_attention_heads / t;
  const int64_t kv = std::max<int64_t>(c.num_query_groups / t, 1) * c.kv_channels;
  const int64_t masks = c.hidden_dropout > 0 ? 2 : 0;
  LayerActivations bytes;
  bytes.hidden = (4 * e + masks) * local_tokens(c, shape) * c.hidden_size;
  const int64_t mlp = (c.activation == ActivationType::SwiGlu ? 3 : 2) * (c.ffn_hidden_size / t);
  bytes.inner = e * tokens * (2 * heads * c.kv_channels + 2 * kv + mlp);
  const int64_t per_score = c.attention_dropout > 0 ? 2 * e + 1 : e;
  bytes.scores = shape.attention == AttentionMemory::Flash ? shape.statistic_bytes * heads * tokens
                                                           : per_score * heads * tokens * c.seq_length;
  return bytes;
}

ChunkActivations chunk_activations(const ModelConfig& c, const ActivationShape& shape,
                                   const parallel::Recompute& recompute, const parallel::LayerMap& layers, int stage) {
  ChunkActivations chunk;
  add_layers(layer_activations(c, shape), hidden_bytes(c, shape), recompute,
             layers.stage_layers[static_cast<size_t>(stage)].size(), chunk);
  if (stage == 0 && c.hidden_dropout > 0) chunk.ends += local_tokens(c, shape) * c.hidden_size;
  if (stage + 1 == layers.num_virtual_stages()) {
    const int64_t logits =
        c.seq_length * shape.micro_batch * (c.padded_vocab_size(shape.tensor_parallel) / shape.tensor_parallel);
    chunk.ends += 2 * hidden_bytes(c, shape) + (shape.element_bytes + shape.statistic_bytes) * logits;
  }
  return chunk;
}

StageMemory stage_memory(const ModelConfig& c, const MemoryRequest& request, std::span<const Op> ops, int position) {
  const parallel::LayerMap& layers = request.layers;
  const auto t = static_cast<int>(request.activations.tensor_parallel);
  StageMemory m;
  m.parameters = rank_parameters(c, t, layers, position);
  m.states = state_bytes(m.parameters, request.widths, request.zero);
  const bool first = position == layers.position_of(0);
  const bool last = position == layers.position_of(layers.num_virtual_stages() - 1);
  const int64_t tables = (first ? 1 : 0) + (last && !(first && c.tie_embeddings) ? 1 : 0);
  m.vocabulary_padding = tables * (c.padded_vocab_size(t) - c.vocab_size) * c.hidden_size;

  std::vector<ChunkActivations> chunks;
  for (int chunk = 0; chunk < layers.chunks; ++chunk) {
    chunks.push_back(
        chunk_activations(c, request.activations, request.recompute, layers, layers.virtual_stage(position, chunk)));
    m.working = std::max(m.working, chunks.back().working);
  }
  int live = 0;
  int64_t of_layers = 0, of_ends = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    const int sign = is_forward(op.kind) ? 1 : is_backward_weight(op.kind) ? -1 : 0;
    const ChunkActivations& chunk = chunks[static_cast<size_t>(op.chunk)];
    live += sign;
    of_layers += sign * chunk.layers;
    of_ends += sign * chunk.ends;
    m.in_flight = std::max(m.in_flight, live);
    if (of_layers + of_ends > m.activations + m.ends) {
      m.activations = of_layers;
      m.ends = of_ends;
      m.peak_op = static_cast<int>(i);
    }
  }
  if (layers.pipeline > 1) m.buffers += 2 * hidden_bytes(c, request.activations);
  if (request.zero.stage == 2) {
    m.buffers += 2 * request.widths.gradients * std::min(request.bucket_parameters, m.parameters);
  }
  if (request.zero.stage == 3 && request.zero.shard_group > 1) {
    const int64_t unit = largest_unit(c, t, layers, position);
    m.buffers += (request.widths.weights * (1 + request.prefetch) + request.widths.gradients) * unit;
  }
  return m;
}

}  // namespace triax::model

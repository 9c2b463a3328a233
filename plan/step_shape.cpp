#include "plan/step_shape.h"

#include <algorithm>

#include "io/options/validate.h"

namespace triax::plan {
namespace {

void take_model(const model::ModelConfig& m, int tensor, StepShape& s) {
  s.layers = m.num_layers;
  s.hidden = m.hidden_size;
  s.ffn = m.ffn_hidden_size;
  s.heads = m.num_attention_heads;
  s.kv_heads = m.num_query_groups;
  s.head_size = m.kv_channels;
  s.seq = m.seq_length;
  s.vocab = m.padded_vocab_size(tensor);
  s.activation = m.activation;
  s.norm = m.norm;
  s.learned_positions = m.position == model::PositionType::Learned;
  s.rotary = m.position == model::PositionType::Rope;
  s.biases = m.add_bias_linear;
  s.tied = m.tie_embeddings;
  s.hidden_dropout = m.hidden_dropout > 0;
  s.attention_dropout = m.attention_dropout > 0;
}

/// Bytes of an update for each parameter: masters (the weights themselves where those are as wide) and moments read and
/// written, gradients read by the norm and by the update, narrower weights written.
double update_bytes(const io::OptimizerOptions& o, double weight, double state, double gradient) {
  const double moments = o.kind == io::OptimizerKind::Adam ? 2 : o.sgd_momentum > 0 ? 1 : 0;
  return 2 * state * (1 + moments) + 2 * gradient + (weight < state ? weight : 0);
}

}  // namespace

int64_t recomputed_of_chunk(const parallel::Recompute& recompute, int64_t layers_of_chunk) {
  if (recompute.granularity != parallel::RecomputeGranularity::Full) return 0;
  if (recompute.method == parallel::RecomputeMethod::Uniform) return layers_of_chunk;
  return std::min(recompute.num_layers, layers_of_chunk);
}

const char* name_of(parallel::RecomputeGranularity granularity) {
  if (granularity == parallel::RecomputeGranularity::None) return "none";
  return granularity == parallel::RecomputeGranularity::Selective ? "selective" : "full";
}

StepShape shape_of(const io::RunOptions& options) {
  const io::ParallelOptions& p = options.parallel;
  StepShape s;
  take_model(options.model, p.grid.tensor, s);
  s.order = p.grid.order;
  s.tensor = p.grid.tensor;
  s.pipeline = p.grid.pipeline;
  s.chunks = p.chunks;
  s.data = p.grid.data;
  s.sequence_parallel = p.sequence_parallel && p.grid.tensor > 1;
  s.schedule = p.schedule;
  s.zero = p.grid.data > 1 ? p.zero_stage : 0;
  s.shard_group = std::max(1, io::shard_group_of(options));
  if (s.zero == 3 && p.zero_hpz > 1) s.states = parallel::StateSharding::AllOfData;
  s.keep = p.zero_keep;
  s.recompute = p.recompute.granularity;
  const int64_t virtual_stages = int64_t{p.grid.pipeline} * p.chunks;
  s.recomputed_layers = recomputed_of_chunk(p.recompute, (s.layers + virtual_stages - 1) / virtual_stages);
  s.scatter_gather = p.scatter_gather && p.grid.tensor > 1 && !s.sequence_parallel;
  s.overlap_grad_reduce = p.overlap_grad_reduce;
  // Stage 3 without a unit gathered ahead hides nothing, whatever switched it off.
  s.overlap_param_gather = s.zero == 3 ? io::unit_options_of(options).prefetch > 0 : p.overlap_param_gather;
  s.overlap_p2p = p.overlap_p2p;
  s.first_layers = p.decoder_first_num_layers;
  s.last_layers = p.decoder_last_num_layers;
  s.micro_batch = options.batch.micro_batch_size;
  s.num_micro_batches = options.batch.num_micro_batches;
  s.dtype = io::compute_dtype(options.control.precision);
  s.element_bytes = static_cast<int64_t>(size_of(s.dtype));
  s.gradient_bytes = static_cast<int64_t>(size_of(io::state_dtype(options.control.precision)));
  s.gather_bytes = p.zero_stage == 3 && p.zero_quantized_weights ? 1 : s.element_bytes;
  s.optimizer = options.optimizer.kind;
  const auto state = static_cast<double>(size_of(io::state_dtype(options.control.precision)));
  s.optimizer_bytes = update_bytes(options.optimizer, static_cast<double>(s.element_bytes), state,
                                   static_cast<double>(s.gradient_bytes));
  return s;
}

ShapeParameters parameters_of(const StepShape& s) {
  const auto h = static_cast<double>(s.hidden);
  const auto q = static_cast<double>(s.query_size());
  const auto kv = static_cast<double>(s.kv_size());
  const auto f = static_cast<double>(s.ffn);
  const double t = s.tensor;
  const double expand = s.activation == model::ActivationType::SwiGlu ? 2 : 1;
  const double norm = s.norm == model::NormType::LayerNorm ? 2 * h : h;
  ShapeParameters p;
  p.layer = (h * (q + 2 * kv) + q * h + (expand + 1) * h * f) / t + 2 * norm;
  if (s.biases) p.layer += (q + 2 * kv + expand * f) / t + 2 * h;
  const double word = static_cast<double>(s.vocab) * h / t;
  p.embedding = word + (s.learned_positions ? static_cast<double>(s.seq) * h : 0);
  p.head = norm + (s.tied && s.pipeline == 1 ? 0 : word);
  return p;
}

int64_t layers_of_position(const StepShape& s, int position) {
  const int last = s.pipeline - 1;
  if (position == 0 && s.first_layers > 0) return s.first_layers;
  if (position == last && s.last_layers > 0 && last > 0) return s.last_layers;
  const int fixed = (s.first_layers > 0 ? 1 : 0) + (s.last_layers > 0 && last > 0 ? 1 : 0);
  const int64_t rest = s.layers - (s.first_layers > 0 ? s.first_layers : 0) - (last > 0 ? s.last_layers : 0);
  const int64_t shared = std::max(1, s.pipeline - fixed);
  const int index = position - (s.first_layers > 0 ? 1 : 0);
  return rest / shared + (index < rest % shared ? 1 : 0);
}

double step_flops_of(const StepShape& s, FlopCount count) {
  const auto h = static_cast<double>(s.hidden);
  const auto q = static_cast<double>(s.query_size());
  const auto seq = static_cast<double>(s.seq);
  const double tokens = static_cast<double>(s.global_batch()) * seq;
  const double expand = s.activation == model::ActivationType::SwiGlu ? 3 : 2;
  const double core = 4 * tokens * seq * q;
  const double layer =
      2 * tokens * (2 * h * q + 2 * h * static_cast<double>(s.kv_size()) + expand * h * static_cast<double>(s.ffn)) +
      core;
  const auto layers = static_cast<double>(s.layers);
  double flops = 3 * (layers * layer + 2 * tokens * h * static_cast<double>(s.vocab));
  if (count == FlopCount::Model) return flops;
  if (s.recompute == parallel::RecomputeGranularity::Full) {
    const double chunks = static_cast<double>(s.pipeline) * s.chunks;
    flops += std::min(layers, static_cast<double>(s.recomputed_layers) * chunks) * layer;
  }
  if (s.recompute == parallel::RecomputeGranularity::Selective) flops += layers * core;
  return flops;
}

}  // namespace triax::plan

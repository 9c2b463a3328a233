// Bounds on products of dimensions: each factor is legal by itself, the product must stay within 64 bits.
#include <algorithm>
#include <cmath>

#include "io/options/fault_list.h"

namespace triax::io {
namespace {

// Elements that one tensor or the whole model may have: their bytes and sums over ranks stay below 2^62.
constexpr double kMostElements = 0x1p54;
constexpr int64_t kMostStages = int64_t{1} << 20;
constexpr int64_t kMostMicroBatches = int64_t{1} << 20;

double real(int64_t value) { return static_cast<double>(std::max<int64_t>(value, 0)); }

// Rows of the embedding after padding, at most.
double vocabulary(const RunOptions& options) {
  const model::ModelConfig& m = options.model;
  return real(m.vocab_size) + real(m.make_vocab_size_divisible_by) * options.parallel.grid.tensor;
}

double parameters(const RunOptions& options) {
  const model::ModelConfig& m = options.model;
  const double h = real(m.hidden_size);
  const double attention = 4 * h * real(m.num_attention_heads) * real(m.kv_channels);
  return real(m.num_layers) * (attention + 3 * h * real(m.ffn_hidden_size)) +
         h * (2 * vocabulary(options) + real(m.max_position_embeddings));
}

// The largest tensor of one forward pass: [b, s, width] or attention's [b, a, s, s].
double activation(const RunOptions& options) {
  const model::ModelConfig& m = options.model;
  const double s = real(m.seq_length), heads = real(m.num_attention_heads);
  const double width = std::max({real(m.hidden_size), 2 * real(m.ffn_hidden_size), 3 * heads * real(m.kv_channels),
                                 vocabulary(options), heads * s});
  return real(options.batch.micro_batch_size) * s * width;
}

}  // namespace

bool check_size(const RunOptions& options, int64_t dp, FaultList& faults) {
  const BatchOptions& batch = options.batch;
  const ParallelOptions& p = options.parallel;
  bool good = true;
  const auto at_most = [&](double value, double limit, const char* options_named, const char* what) {
    if (value <= limit) return;
    good = false;
    faults.text(
        fmt::format("{}: {:.3g} {} are more than {:.3g}; use smaller values", options_named, value, what, limit));
  };
  at_most(parameters(options), kMostElements,
          "--num-layers, --hidden-size, --ffn-hidden-size, --num-attention-heads, --kv-channels, --vocab-size",
          "parameters");
  at_most(activation(options), kMostElements, "--micro-batch-size, --seq-length and the model's widths",
          "elements of one activation");
  const int64_t stages = int64_t{p.grid.pipeline} * p.chunks;
  at_most(real(stages), static_cast<double>(kMostStages),
          "--pipeline-model-parallel-size, --num-virtual-stages-per-pipeline-rank", "stages");
  const int64_t per_pass = std::max<int64_t>(batch.micro_batch_size, 1) * std::max<int64_t>(dp, 1);
  const int64_t global = std::max(batch.global_batch_size, per_pass);
  at_most(real(global / per_pass), static_cast<double>(kMostMicroBatches), "--global-batch-size, --micro-batch-size",
          "micro-batches");
  const OptimizerOptions& o = options.optimizer;
  const int64_t iterations = std::max({batch.train_iters, o.lr_decay_iters, o.lr_warmup_iters, o.lr_wsd_decay_iters});
  const double samples = std::max(real(iterations) * real(global), real(batch.train_samples));
  at_most(samples * std::max(real(options.model.seq_length), 1.0), 0x1p62,
          "--train-iters or --train-samples, --global-batch-size, --seq-length", "tokens of the run");
  const RunControl& control = options.control;
  const double evaluations = 2 + real(batch.train_iters) / std::max(real(control.eval_interval), 1.0);
  at_most(real(control.eval_iters) * real(global) * evaluations * std::max(real(options.model.seq_length), 1.0), 0x1p62,
          "--eval-iters, --global-batch-size, --seq-length", "tokens of evaluation");
  return good;
}

}  // namespace triax::io

#include "bench/kernel_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/clock.h"
#include "base/error.h"
#include "bench/kernel_calls.h"
#include "model/counts.h"

namespace triax::bench {
namespace {

using SizeList = std::vector<int64_t>;

constexpr size_t kBatch = 24;
constexpr int64_t kMostElements = int64_t{1} << 40;
constexpr double kWorstBatch_s = 2;  ///< kept free for the batch under way

/// Layers at which points of a plan come: every size of a coarse grid before any that needs a fine one.
struct Grid {
  SizeList coarse, fine;
  SizeList all() const {
    SizeList both = coarse;
    both.insert(both.end(), fine.begin(), fine.end());
    return both;
  }
  bool is_coarse(int64_t size) const { return std::find(coarse.begin(), coarse.end(), size) != coarse.end(); }
};

/// What a plan goes over. Attention: positions and head dimensions, without and with dropout.
struct PlanSizes {
  Grid tokens, widths, vocabularies;            ///< of GEMMs
  Grid rows, cols, loss_rows, loss_cols, flat;  ///< of the other kernels
  Grid positions, head_dims, dropout_positions, dropout_head_dims;
  int64_t most_elements = 0, most_losses = 0;
};

const PlanSizes kOfHost{{{64, 256, 1024}, {32, 128, 512, 2048}},
                        {{64, 256, 1024, 4096}, {128, 192, 384, 512, 768, 2048}},
                        {{8192, 32768}, {2048}},
                        {{64, 1024}, {256}},
                        {{64, 512, 4096}, {64, 256, 1024}},
                        {{64, 256, 1024}, {128, 512}},
                        {{128, 2048, 32768}, {8192}},
                        {{1 << 14, 1 << 17, 1 << 20, 1 << 22}, {1 << 24}},
                        {{32, 128, 512, 2048}, {64, 256, 1024}},
                        {{16, 64, 128}, {16, 32, 64, 128}},
                        {{32, 256, 1024}, {64, 128, 512}},
                        {{16, 64}, {32, 64, 128}},
                        1 << 22,
                        1 << 23};

/// Small ones too, where a launch decides.
const PlanSizes kOfGpu{{{64, 1024, 8192}, {256, 2048, 4096, 16384}},
                       {{64, 1024, 4096, 8192}, {512, 2048, 3072, 5120, 12288}},
                       {{32768, 50304}, {128256}},
                       {{64, 1024, 8192}, {4096}},
                       {{64, 1024, 8192}, {512, 2048, 4096, 12288}},
                       {{64, 1024, 8192}, {2048, 4096}},
                       {{128, 8192, 50304}, {32768, 128256}},
                       {{1 << 12, 1 << 16, 1 << 20, 1 << 24}, {1 << 22, 1 << 26, 1 << 28}},
                       {{32, 256, 2048, 8192}, {64, 512, 1024, 4096}},
                       {{16, 64, 128}, {80, 96, 128}},
                       {{32, 512, 2048}, {128, 1024, 4096}},
                       {{16, 64, 128}, {96}},
                       1 << 27,
                       int64_t{1} << 30};

const PlanSizes& sizes_for(PlanFor what) { return what == PlanFor::Host ? kOfHost : kOfGpu; }

void add_kernels(std::vector<KernelPoint>& points, DType dtype, const std::vector<const char*>& names,
                 const SizeList& rows, const SizeList& cols, int64_t most_elements) {
  for (const char* name : names) {
    for (const int64_t r : rows) {
      for (const int64_t c : cols) {
        if (r * c <= most_elements) points.push_back({name, dtype, r, c, 0});
      }
    }
  }
}

struct Layer {
  int64_t tokens, in, out;
};

void add_gemms(std::vector<GemmPoint>& points, DType dtype, const Layer& l) {
  points.push_back({dtype, GemmLayout::TN, false, l.tokens, l.out, l.in, 0});
  points.push_back({dtype, GemmLayout::NN, false, l.tokens, l.in, l.out, 0});
  points.push_back({dtype, GemmLayout::NT, true, l.out, l.in, l.tokens, 0});
}

void add_attention(std::vector<KernelPoint>& points, DType dtype, const std::vector<const char*>& names,
                   const SizeList& positions, const SizeList& head_dims, int64_t most_elements) {
  SizeList rows;
  for (const int64_t s : positions) rows.push_back(s * s);
  add_kernels(points, dtype, names, rows, head_dims, most_elements);
}

/// `measure(batch)` for the first batch, and one after the other while there is time; points behind are dropped.
template <class Point, class Measure>
void in_batches(std::vector<Point>& points, const Budget& budget, Measure measure) {
  size_t done = 0;
  while (done < points.size()) {
    if (done > 0 && !budget.leaves(std::min(kWorstBatch_s, budget.total_s() / 20))) break;
    const size_t end = std::min(done + kBatch, points.size());
    measure(std::span<Point>(points).subspan(done, end - done));
    done = end;
  }
  points.resize(done);
}

}  // namespace

std::vector<KernelPoint> kernel_plan(const std::vector<DType>& dtypes, PlanFor what, int64_t most_elements) {
  constexpr int64_t kAttention = 16;  // an element of s x s x d costs as much less as one of the others
  const PlanSizes& sizes = sizes_for(what);
  const int64_t most = std::min(most_elements, sizes.most_elements);
  std::vector<KernelPoint> points;
  for (const bool coarse : {true, false}) {
    const auto of = [coarse](const Grid& grid) -> const SizeList& { return coarse ? grid.coarse : grid.fine; };
    for (const DType dtype : dtypes) {
      add_kernels(points, dtype,
                  {"layer_norm_forward", "layer_norm_backward", "rms_norm_forward", "rms_norm_backward", "gelu_forward",
                   "gelu_backward", "swiglu_forward", "swiglu_backward", "residual", "residual_backward", "dropout",
                   "dropout_backward", "bias_backward", "rotary", "embedding_forward", "embedding_backward"},
                  of(sizes.rows), of(sizes.cols), most);
      const int64_t scores = std::min(most_elements, kMostElements / kAttention) * kAttention;
      add_attention(points, dtype, {"attention_forward", "attention_backward"}, of(sizes.positions),
                    of(sizes.head_dims), scores);
      add_attention(points, dtype, {"attention_dropout_forward", "attention_dropout_backward"},
                    of(sizes.dropout_positions), of(sizes.dropout_head_dims), scores);
      add_kernels(points, dtype, {"cross_entropy", "cross_entropy_backward"}, of(sizes.loss_rows), of(sizes.loss_cols),
                  std::min(most_elements, sizes.most_losses));
      add_kernels(points, dtype, {"adamw", "sgd", "sum_of_squares", "fill", "copy", "add", "scale"}, {1},
                  of(sizes.flat), std::min(most_elements, sizes.flat.all().back()));
    }
  }
  return points;
}

std::vector<GemmPoint> gemm_plan(const std::vector<DType>& dtypes, PlanFor what, double most_flops) {
  const PlanSizes& sizes = sizes_for(what);
  std::vector<std::pair<int, Layer>> layers;  // how many of the sizes are not coarse
  const auto add = [&](const Grid& ins, const Grid& outs) {
    for (const int64_t tokens : sizes.tokens.all()) {
      for (const int64_t in : ins.all()) {
        for (const int64_t out : outs.all()) {
          const int fine = !sizes.tokens.is_coarse(tokens) + !ins.is_coarse(in) + !outs.is_coarse(out);
          layers.push_back({fine, {tokens, in, out}});
        }
      }
    }
  };
  add(sizes.widths, sizes.widths);
  add(sizes.widths, sizes.vocabularies);
  std::stable_sort(layers.begin(), layers.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<GemmPoint> points;
  for (const auto& [fine, layer] : layers) {
    for (const DType dtype : dtypes) {
      if (2.0 * static_cast<double>(layer.tokens * layer.in) * static_cast<double>(layer.out) > most_flops) continue;
      add_gemms(points, dtype, layer);
    }
  }
  return points;
}

std::vector<ModelGemm> model_gemms(const model::ModelConfig& model, const ShapeOptions& options) {
  const int64_t t = options.tensor_parallel;
  const int64_t kv = std::max<int64_t>(model.num_query_groups / t, 1);
  if (model.num_attention_heads % t != 0 || model.ffn_hidden_size % t != 0 ||
      (model.num_query_groups % t != 0 && t % model.num_query_groups != 0)) {
    throw ConfigError(fmt::format("--tensor-model-parallel-size {} must divide {} heads, {} KV heads and {} of the MLP",
                                  t, model.num_attention_heads, model.num_query_groups, model.ffn_hidden_size));
  }
  const int64_t h = model.hidden_size, tokens = model.seq_length * options.micro_batch;
  const int64_t q = model.query_size() / t, f = model.ffn_hidden_size / t;
  const int64_t gates = model.activation == model::ActivationType::SwiGlu ? 2 : 1;
  const std::pair<const char*, Layer> layers[]{{"qkv", {tokens, h, q + 2 * kv * model.kv_channels}},
                                               {"proj", {tokens, q, h}},
                                               {"fc1", {tokens, h, gates * f}},
                                               {"fc2", {tokens, f, h}},
                                               {"logits", {tokens, h, model.padded_vocab_size(t) / t}}};
  std::vector<ModelGemm> all;
  for (const auto& [name, layer] : layers) {
    std::vector<GemmPoint> points;
    add_gemms(points, options.dtype, layer);
    for (const GemmPoint& point : points) all.push_back({name, point});
  }
  return all;
}

std::vector<KernelPoint> model_kernels(const model::ModelConfig& model, const ShapeOptions& options) {
  const int64_t t = options.tensor_parallel;
  const int64_t tokens = model.seq_length * options.micro_batch;
  const int64_t kv = std::max<int64_t>(model.num_query_groups / t, 1) * model.kv_channels;
  const int64_t q = model.query_size() / t, f = model.ffn_hidden_size / t;
  const bool gated = model.activation == model::ActivationType::SwiGlu;
  std::vector<KernelPoint> points;
  const auto add = [&](const std::string& name, int64_t rows, int64_t cols) {
    points.push_back({name, options.dtype, rows, cols, 0});
  };
  const auto both = [&](const std::string& name, int64_t rows, int64_t cols) {
    add(name + "_forward", rows, cols);
    add(name + "_backward", rows, cols);
  };
  both(model.norm == model::NormType::RMSNorm ? "rms_norm" : "layer_norm", tokens, model.hidden_size);
  both(gated ? "swiglu" : "gelu", tokens, f);
  const std::string residual = model.hidden_dropout > 0 ? "dropout" : "residual";
  add(residual, tokens, model.hidden_size);
  add(residual + "_backward", tokens, model.hidden_size);
  both(model.attention_dropout > 0 ? "attention_dropout" : "attention", model.seq_length * model.seq_length,
       model.kv_channels);
  if (model.add_qkv_bias) add("bias_backward", tokens, q + 2 * kv);
  if (model.add_bias_linear) add("bias_backward", tokens, gated ? 2 * f : f);
  if (model.position == model::PositionType::Rope) add("rotary", tokens, q);
  both("embedding", tokens, model.hidden_size);
  add("cross_entropy", tokens, model.padded_vocab_size(t) / t);
  add("cross_entropy_backward", tokens, model.padded_vocab_size(t) / t);
  const int64_t parameters = std::min<int64_t>(model::parameter_count(model) / t, int64_t{1} << 27);
  for (const int64_t n : {parameters, parameters / 2, parameters / 4}) {
    for (const char* name : {"adamw", "sum_of_squares", "fill"}) add(name, 1, std::max<int64_t>(n, 1));
  }
  return points;
}

Budget::Budget(double seconds, comm::Communicator* group) : total_s_(seconds), start_s_(now_s()), group_(group) {}

double Budget::elapsed_s() const { return now_s() - start_s_; }

bool Budget::leaves(double seconds) const {
  double least = total_s_ - elapsed_s();
  if (group_ != nullptr && group_->size() > 1) {
    group_->all_reduce(Tensor(&least, DType::Float64, {1}), comm::ReduceOp::Min).wait();
  }
  return least >= seconds;
}

void measure_gemms(Operands& operands, const TimingOptions& timing, const Budget& budget, comm::Communicator* group,
                   std::vector<GemmPoint>& points) {
  in_batches(points, budget, [&](std::span<GemmPoint> batch) {
    std::vector<std::function<void()>> calls;
    for (const GemmPoint& point : batch) calls.push_back(gemm_call(operands, point));
    const std::vector<Statistics> times = time_cases(calls, timing, group);
    for (size_t i = 0; i < batch.size(); ++i) batch[i].time_s = undisturbed_s(times[i]);
  });
}

void measure_kernels(Operands& operands, const TimingOptions& timing, const Budget& budget, comm::Communicator* group,
                     std::vector<KernelPoint>& points) {
  in_batches(points, budget, [&](std::span<KernelPoint> batch) {
    std::vector<std::function<void()>> calls;
    for (const KernelPoint& point : batch)
      calls.push_back(kernel_call(operands, point, heads_of_call(point, operands.device())));
    const std::vector<Statistics> times = time_cases(calls, timing, group);
    for (size_t i = 0; i < batch.size(); ++i) {
      batch[i].time_s = undisturbed_s(times[i]) / static_cast<double>(heads_of_call(batch[i], operands.device()));
    }
  });
}

}  // namespace triax::bench

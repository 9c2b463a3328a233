// One rank in fp64 against PyTorch: gradients of the first step, losses, norms and weights over five AdamW steps of a
// tiny GPT-2 (tied, biases, learned positions) and a tiny Llama (GQA, SwiGLU, RoPE, untied). Fixture and script:
// tests/fixtures.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/philox.h"
#include "comm/self_comm.h"
#include "model/stage.h"

namespace triax::model {
namespace {

using nlohmann::json;
using parallel::Parameter;

ModelConfig config_of(const json& c) {
  const bool gpt = c["kind"] == "gpt2";
  ModelConfig m;
  m.num_layers = c["num_layers"];
  m.hidden_size = c["hidden_size"];
  m.ffn_hidden_size = c["ffn_hidden_size"];
  m.num_attention_heads = c["num_attention_heads"];
  m.num_query_groups = c["num_query_groups"];
  m.kv_channels = c["kv_channels"];
  m.max_position_embeddings = c["max_position_embeddings"];
  m.seq_length = c["seq_length"];
  m.vocab_size = c["vocab_size"];
  m.norm = gpt ? NormType::LayerNorm : NormType::RMSNorm;
  m.activation = gpt ? ActivationType::Gelu : ActivationType::SwiGlu;
  m.position = gpt ? PositionType::Learned : PositionType::Rope;
  m.add_bias_linear = m.add_qkv_bias = m.tie_embeddings = gpt;
  m.norm_epsilon = c["norm_epsilon"];
  m.init_method_std = c["init_method_std"];
  m.rotary_base = c["rotary_base"];
  m.hidden_dropout = m.attention_dropout = 0;
  return m;
}

// The model on one rank with a plain optimizer loop.
class Trained {
 public:
  Trained(const json& config, parallel::Recompute recompute, parallel::WeightGradient when)
      : config_(config), device_(kernels::make_cpu_device({2})), arena_(heap_), when_(when) {
    context_.device = device_.get();
    context_.arena = &arena_;
    context_.tensor = &self_;
    context_.dtype = context_.state_dtype = DType::Float64;
    context_.seq_length = config["seq_length"];
    context_.micro_batch = config["micro_batch"];
    context_.step = &step_;
    StageOptions options;
    options.model = config_of(config);
    options.layers = parallel::make_layer_map(options.model.num_layers, 1, 1, 0, 0, {});
    options.recompute = recompute;
    chunks_ = make_chunks(options, context_, store_);
    store_.allocate(DType::Float64, DType::Float64, arena_, *device_);
    parallel::initialize_parameters(store_, 1234, {0, store_.numel()}, store_.flat_weight());
    moment1_.assign(static_cast<size_t>(store_.numel()), 0);
    moment2_ = moment1_;
  }

  /// Mean loss of the fixture's batch `step`; gradients are left in the store.
  double forward_backward(int step) {
    const int64_t s = context_.seq_length, b = context_.micro_batch, T = s * b;
    std::vector<int32_t> token(static_cast<size_t>(T)), target(token), position(token);
    std::vector<int64_t> sample(static_cast<size_t>(b));
    const auto id = [&](int64_t i, int64_t j) {
      return static_cast<int32_t>((7 * i + 3 * j * j + 5 * step) % config_["vocab_size"].get<int64_t>());
    };
    for (int64_t i = 0; i < s; ++i) {
      for (int64_t j = 0; j < b; ++j) {
        const auto row = static_cast<size_t>(i * b + j);
        token[row] = id(i, j);
        target[row] = id(i + 1, j);
        position[row] = static_cast<int32_t>(i);
      }
    }
    parallel::MicroBatch batch;
    batch.token = Tensor(token.data(), DType::Int32, {T});
    batch.target = Tensor(target.data(), DType::Int32, {T});
    batch.index = {Tensor(sample.data(), DType::Int64, {b}), Tensor(position.data(), DType::Int32, {T})};
    double loss = 0;
    auto state = chunks_[0]->make_state();
    // Whatever the gradients held is gone, also where the first product overwrites instead of adding.
    device_->fill(store_.flat_grad(), std::numeric_limits<double>::quiet_NaN());
    store_.forget_held_grads(*device_);
    chunks_[0]->forward(*state, batch, {}, parallel::Mode::Train, Tensor(&loss, DType::Float64, {1}));
    chunks_[0]->backward_input(*state, {}, when_);
    if (when_ == parallel::WeightGradient::Later) chunks_[0]->backward_weight(*state);
    return loss / static_cast<double>(T);
  }

  double gradient_norm() {
    double sum = 0;
    device_->sum_of_squares(store_.flat_grad(), Tensor(&sum, DType::Float64, {1}));
    return std::sqrt(sum);
  }

  void update(int step, double norm, const json& o) {
    step_.update = step + 1;
    step_.learning_rate = o["lr"];
    step_.grad_scale = std::min(1.0, o["clip"].get<double>() / (norm + 1e-6));
    for (const Parameter& p : store_.parameters()) {
      kernels::AdamW a;
      a.master = p.weight.flat();
      a.grad = p.grad.flat();
      a.exp_avg = Tensor(moment1_.data() + p.offset, DType::Float64, {p.numel});
      a.exp_avg_sq = Tensor(moment2_.data() + p.offset, DType::Float64, {p.numel});
      a.beta1 = o["beta1"];
      a.beta2 = o["beta2"];
      a.eps = o["eps"];
      a.weight_decay = p.weight_decay ? o["decay"].get<double>() : 0.0;
      device_->adamw(a, &step_);
    }
  }

  const parallel::ParameterStore& store() const { return store_; }
  int64_t live_activations() const { return arena_.ledger().live[static_cast<size_t>(MemoryCategory::Activations)]; }

 private:
  json config_;
  HeapProvider heap_;
  std::unique_ptr<kernels::Device> device_;
  comm::SelfCommunicator self_{"tp", heap_};
  Arena arena_;
  parallel::WeightGradient when_;
  kernels::StepBlock step_;
  parallel::LayerContext context_;
  parallel::ParameterStore store_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<double> moment1_, moment2_;
};

void expect_digest(const std::string& what, const Parameter& p, const double* values, const json& expected) {
  // In exact arithmetic a key bias has no gradient, so its bits are noise.
  const double tolerance = 1e-9 * std::max(1.0, expected["norm"].get<double>());
  double sum = 0, probe = 0;
  const uint64_t stream = stream_of("probe." + p.name);
  for (int64_t i = 0; i < p.true_numel(); ++i) {
    sum += values[i] * values[i];
    probe += values[i] * normal_at(1234, stream, static_cast<uint64_t>(i));
  }
  EXPECT_NEAR(std::sqrt(sum), expected["norm"].get<double>(), tolerance) << what << " " << p.name;
  EXPECT_NEAR(probe, expected["probe"].get<double>(), tolerance) << what << " " << p.name;
  for (size_t i = 0; i < expected["head"].size(); ++i) {
    EXPECT_NEAR(values[i], expected["head"][i].get<double>(), tolerance) << what << " " << p.name << "[" << i << "]";
  }
}

struct Variant {
  const char* name;
  parallel::Recompute recompute;
  parallel::WeightGradient when;
};

class Golden : public testing::TestWithParam<Variant> {};

TEST_P(Golden, matches_pytorch) {
  const json fixture = json::parse(std::ifstream(TRIAX_SOURCE_DIR "/tests/fixtures/golden_torch.json"));
  for (const json& expected : fixture["models"]) {
    SCOPED_TRACE(expected["config"]["kind"].get<std::string>());
    Trained trained(expected["config"], GetParam().recompute, GetParam().when);
    size_t tensors = 0;
    for (int step = 0; step < static_cast<int>(expected["losses"].size()); ++step) {
      const double loss = trained.forward_backward(step);
      EXPECT_NEAR(loss, expected["losses"][static_cast<size_t>(step)].get<double>(), 1e-9) << "step " << step;
      if (step == 0) {
        for (const Parameter& p : trained.store().parameters()) {
          ASSERT_TRUE(expected["gradients"].contains(p.name)) << p.name;
          expect_digest("gradient of", p, p.grad.as<double>(), expected["gradients"][p.name]);
          ++tensors;
        }
        EXPECT_EQ(tensors, expected["gradients"].size());
      }
      const double norm = trained.gradient_norm();
      EXPECT_NEAR(norm, expected["grad_norms"][static_cast<size_t>(step)].get<double>(), 1e-9) << "step " << step;
      trained.update(step, norm, fixture["optimizer"]);
      EXPECT_EQ(trained.live_activations(), 0) << "activations leak";
    }
    for (const Parameter& p : trained.store().parameters()) {
      expect_digest("weight", p, p.weight.as<double>(), expected["weights"][p.name]);
    }
  }
}

using parallel::RecomputeGranularity;
using parallel::RecomputeMethod;
using parallel::WeightGradient;
INSTANTIATE_TEST_SUITE_P(
    Variants, Golden,
    testing::Values(
        Variant{"plain", {}, WeightGradient::Now}, Variant{"deferred_weight_gradients", {}, WeightGradient::Later},
        Variant{"selective", {RecomputeGranularity::Selective}, WeightGradient::Now},
        Variant{"full_uniform_1", {RecomputeGranularity::Full, RecomputeMethod::Uniform, 1}, WeightGradient::Now},
        Variant{"full_uniform_2_deferred",
                {RecomputeGranularity::Full, RecomputeMethod::Uniform, 2},
                WeightGradient::Later},
        Variant{"full_block_1", {RecomputeGranularity::Full, RecomputeMethod::Block, 1}, WeightGradient::Now}),
    [](const auto& variant) { return std::string(variant.param.name); });

}  // namespace
}  // namespace triax::model

// Parameters per rank and floating-point operations against formulas in closed form.
#include <gtest/gtest.h>

#include "model/counts.h"
#include "model/presets.h"

using namespace triax::model;
using triax::parallel::LayerMap;
using triax::parallel::make_layer_map;
using triax::parallel::Recompute;
using triax::parallel::RecomputeGranularity;
using triax::parallel::RecomputeMethod;

namespace {

const ModelConfig& preset(const char* name) { return find_preset(name)->config; }

void expect_relative(double value, double expected) { EXPECT_NEAR(value / expected, 1.0, 1e-12); }

TEST(RankParameters, one_rank_holds_the_model_with_a_padded_vocabulary) {
  ModelConfig c = preset("gpt2-124m");
  const LayerMap one = make_layer_map(c.num_layers, 1, 1, 0, 0, {});
  EXPECT_EQ(rank_parameters(c, 1, one, 0), parameter_count(c) + (50304 - 50257) * 768);
}

TEST(RankParameters, stages_and_tensor_ranks_sum_to_the_whole) {
  // t1: 4 layers, h 64, f 176, q 64, kv 32; per layer at tp 2: 64*(32+2*16) + 32*64 + 64*176 + 88*64 + 2*64.
  const ModelConfig& c = preset("t1");
  const LayerMap two = make_layer_map(4, 2, 1, 0, 0, {});
  const int64_t layer = 64 * 64 + 32 * 64 + 64 * 176 + 88 * 64 + 128;
  const int64_t embedding = 256 / 2 * 64;  // vocabulary 101 padded to 256
  EXPECT_EQ(rank_parameters(c, 2, two, 0), 2 * layer + embedding);
  EXPECT_EQ(rank_parameters(c, 2, two, 1), 2 * layer + embedding + 64);
}

TEST(RankParameters, kv_heads_are_replicated_beyond_their_number) {
  const ModelConfig& c = preset("t1");  // 2 KV heads on 4 tensor ranks: each rank holds one, of 16 channels
  const LayerMap one = make_layer_map(4, 1, 1, 0, 0, {});
  const int64_t layer = 64 * (16 + 2 * 16) + 16 * 64 + 64 * 88 + 44 * 64 + 128;
  EXPECT_EQ(rank_parameters(c, 4, one, 0), 4 * layer + 2 * (512 / 4 * 64) + 64);
}

TEST(RankParameters, a_tied_head_is_a_second_copy_only_on_another_stage) {
  const ModelConfig& c = preset("t0");
  const LayerMap one = make_layer_map(4, 1, 1, 0, 0, {});
  const LayerMap interleaved = make_layer_map(4, 2, 2, 0, 0, {});
  const int64_t embedding = 128 * 64;
  EXPECT_EQ(layer_parameters(c), 12 * 64 * 64 + 13 * 64);
  EXPECT_EQ(rank_parameters(c, 1, one, 0), 4 * layer_parameters(c) + embedding + 32 * 64 + 128);
  EXPECT_EQ(rank_parameters(c, 1, interleaved, 0), 2 * layer_parameters(c) + embedding + 32 * 64);
  EXPECT_EQ(rank_parameters(c, 1, interleaved, 1), 2 * layer_parameters(c) + embedding + 128);
}

TEST(StepFlops, dense_gpt_is_the_formula_of_the_papers) {
  const ModelConfig& c = preset("megatron-145b");
  const double B = 2304, s = 2048, L = 80, h = 12288, V = 51200;
  const StepFlops none = step_flops(c, 2304, 51200, AttentionCount::Dense);
  expect_relative(none.model, 72 * B * L * s * h * h * (1 + s / (6 * h) + V / (12 * h * L)));
  EXPECT_EQ(none.hardware, none.model);
  const StepFlops full = step_flops(c, 2304, 51200, AttentionCount::Dense, RecomputeGranularity::Full, 80);
  expect_relative(full.hardware, 96 * B * L * s * h * h * (1 + s / (6 * h) + V / (16 * h * L)));
  const StepFlops selective = step_flops(c, 2304, 51200, AttentionCount::Dense, RecomputeGranularity::Selective);
  // Twice 2 B s^2 h per layer again: scores and their product with V.
  expect_relative(selective.hardware, none.model + 4 * B * L * s * s * h);
  EXPECT_EQ(full.model, none.model);
}

TEST(StepFlops, causal_half_is_megatrons_current_formula) {
  const double B = 1536, s = 2048, L = 96, h = 12288, V = 51200;
  const StepFlops flops = step_flops(preset("gpt3-175b"), 1536, 51200, AttentionCount::CausalHalf);
  expect_relative(flops.model, 72 * B * s * L * h * h * (1 + s / (12 * h) + V / (12 * L * h)));
}

TEST(StepFlops, grouped_queries_and_swiglu) {
  const double T = 4.0 * 8192, s = 8192, h = 8192, kv = 1024, f = 28672, L = 80, V = 128256;
  const StepFlops flops = step_flops(preset("llama3-70b"), 4, 128256, AttentionCount::CausalHalf);
  expect_relative(flops.model, 6 * T * (L * (2 * h * h + 2 * h * kv + 3 * h * f) + h * V) + 6 * T * s * L * h);
}

TEST(RecomputedLayers, uniform_is_all_and_block_counts_per_chunk) {
  const LayerMap uneven = make_layer_map(7, 2, 2, 0, 0, {});  // 2, 2, 2, 1
  EXPECT_EQ(recomputed_layers({RecomputeGranularity::None, RecomputeMethod::Uniform, 1}, uneven), 0);
  EXPECT_EQ(recomputed_layers({RecomputeGranularity::Selective, RecomputeMethod::Uniform, 1}, uneven), 0);
  EXPECT_EQ(recomputed_layers({RecomputeGranularity::Full, RecomputeMethod::Uniform, 3}, uneven), 7);
  EXPECT_EQ(recomputed_layers({RecomputeGranularity::Full, RecomputeMethod::Block, 1}, uneven), 4);
  EXPECT_EQ(recomputed_layers({RecomputeGranularity::Full, RecomputeMethod::Block, 2}, uneven), 7);
}

}  // namespace

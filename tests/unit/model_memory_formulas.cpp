// Closed forms of memory against the papers' printed numbers: Korthikanti et al. 2022 figures 1 and 7, ZeRO figure 1,
// a 70B model by hand.
#include <gtest/gtest.h>

#include <string>

#include "model/counts.h"
#include "model/memory_formulas.h"
#include "model/presets.h"
#include "parallel/schedule.h"

namespace triax::model {
namespace {

constexpr double kGiB = 0x1p30;
using parallel::Recompute;
using parallel::RecomputeGranularity;
using parallel::RecomputeMethod;
using parallel::SequenceParallel;

/// One of the four models of Korthikanti et al.'s figures: s 2048, t 8.
struct PaperModel {
  ModelConfig config;
  int64_t micro_batch;
  int pipeline, chunks;
};

PaperModel paper_model(int64_t layers, int64_t hidden, int64_t heads, int64_t b, int p, int v) {
  ModelConfig c;
  c.num_layers = layers;
  c.hidden_size = hidden;
  c.ffn_hidden_size = 4 * hidden;
  c.num_attention_heads = c.num_query_groups = heads;
  c.kv_channels = hidden / heads;
  c.seq_length = c.max_position_embeddings = 2048;
  c.vocab_size = 51200;
  return {c, b, p, v};
}
PaperModel model_22b() { return paper_model(48, 6144, 64, 4, 1, 1); }
PaperModel model_175b() { return paper_model(96, 12288, 96, 1, 8, 3); }
PaperModel model_530b() { return paper_model(105, 20480, 128, 1, 35, 3); }
PaperModel model_1t() { return paper_model(128, 25600, 160, 1, 64, 1); }

ActivationShape unfused(const PaperModel& m, SequenceParallel sp) {
  return {m.micro_batch, 8, sp, AttentionMemory::Unfused};
}

std::vector<parallel::Op> ops_of(int p, int v, int m, int position, parallel::ScheduleKind kind) {
  return parallel::compute_order({kind, p, v, m}, position);
}

/// Activations of the layers on the first stage, in GiB.
double first_stage(const PaperModel& m, SequenceParallel sp, RecomputeGranularity granularity) {
  MemoryRequest request;
  request.layers = parallel::make_layer_map(m.config.num_layers, m.pipeline, m.chunks, 0, 0, {});
  request.recompute.granularity = granularity;
  request.activations = unfused(m, sp);
  const auto kind = m.chunks > 1 ? parallel::ScheduleKind::Interleaved : parallel::ScheduleKind::OneFOneB;
  const auto ops = ops_of(m.pipeline, m.chunks, 8 * m.pipeline, 0, kind);
  return static_cast<double>(stage_memory(m.config, request, ops, 0).activations) / kGiB;
}

TEST(MemoryFormulas, figure_1_to_four_decimals) {
  struct Line {
    PaperModel model;
    double states, none, both;
  };
  const Line lines[] = {{model_22b(), 45.5625, 59.2500, 9.5625},
                        {model_175b(), 45.5625, 66.8438, 12.3516},
                        {model_530b(), 31.6406, 114.0234, 23.0762},
                        {model_1t(), 32.9590, 131.2500, 26.5625}};
  for (const Line& line : lines) {
    const ModelConfig& c = line.model.config;
    SCOPED_TRACE(c.hidden_size);
    // The figure's states: 18 bytes for 12 L h^2 parameters over t p ranks.
    const int64_t psi = 12 * c.num_layers * c.hidden_size * c.hidden_size / (8 * line.model.pipeline);
    EXPECT_NEAR(static_cast<double>(state_bytes(psi, {}, {}).total()) / kGiB, line.states, 5.1e-5);
    EXPECT_NEAR(first_stage(line.model, SequenceParallel::No, RecomputeGranularity::None), line.none, 5.1e-5);
    EXPECT_NEAR(first_stage(line.model, SequenceParallel::Yes, RecomputeGranularity::Selective), line.both, 5.1e-5);
  }
}

TEST(MemoryFormulas, figure_7_percentages) {
  struct Line {
    PaperModel model;
    double sequence, selective, both, full;  // printed
    double by_formula[4];
  };
  const Line lines[] = {{model_22b(), 66.84, 49.42, 16.18, 7.64, {66.77, 49.37, 16.14, 7.59}},
                        {model_175b(), 62.04, 56.53, 18.49, 8.71, {61.96, 56.52, 18.48, 8.70}},
                        {model_530b(), 58.31, 62.04, 20.27, 9.42, {58.33, 61.90, 20.24, 9.52}},
                        {model_1t(), 58.31, 62.04, 20.27, 9.42, {58.33, 61.90, 20.24, 9.52}}};
  for (const Line& line : lines) {
    SCOPED_TRACE(line.model.config.hidden_size);
    parallel::LayerMap one;
    one.stage_layers = {{0, 0}, {0, 1}, {1, 1}};
    one.pipeline = 3;
    const auto kept = [&](SequenceParallel sp, RecomputeGranularity granularity) {
      const ActivationShape shape = unfused(line.model, sp);
      return static_cast<double>(
          chunk_activations(line.model.config, shape, {granularity, RecomputeMethod::Uniform, 1}, one, 1).layers);
    };
    const double none = kept(SequenceParallel::No, RecomputeGranularity::None);
    const double found[] = {100 * kept(SequenceParallel::Yes, RecomputeGranularity::None) / none,
                            100 * kept(SequenceParallel::No, RecomputeGranularity::Selective) / none,
                            100 * kept(SequenceParallel::Yes, RecomputeGranularity::Selective) / none,
                            100 * kept(SequenceParallel::No, RecomputeGranularity::Full) / none};
    const double printed[] = {line.sequence, line.selective, line.both, line.full};
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(found[i], printed[i], 0.15) << i;
      EXPECT_NEAR(found[i], line.by_formula[i], 0.0051) << i;
    }
  }
}

TEST(MemoryFormulas, table_2_of_korthikanti_exactly) {
  const ModelConfig c = model_22b().config;
  const int64_t sbh = 2048 * 4 * 6144, as_h_num = 5 * 64 * 2048;  // 5as/h = as_h_num / 6144
  const auto bytes = [&](int64_t t, SequenceParallel sp) {
    return layer_activations(c, {4, t, sp, AttentionMemory::Unfused});
  };
  EXPECT_EQ(bytes(1, SequenceParallel::No).total(), 34 * sbh + sbh / 6144 * as_h_num);
  EXPECT_EQ(bytes(8, SequenceParallel::No).total(), 10 * sbh + 24 * sbh / 8 + sbh / 6144 * as_h_num / 8);
  EXPECT_EQ(bytes(8, SequenceParallel::Yes).total(), 34 * sbh / 8 + sbh / 6144 * as_h_num / 8);
  EXPECT_EQ(bytes(8, SequenceParallel::Yes).hidden, 10 * sbh / 8);
}

TEST(MemoryFormulas, states_of_zero_figure_1) {
  const StateWidths paper{2, 2, 12};
  const int64_t psi = 7'500'000'000;
  EXPECT_EQ(state_bytes(psi, paper, {0, 64, 64}).total(), 120'000'000'000);
  EXPECT_EQ(state_bytes(psi, paper, {1, 64, 64}).total(), 31'406'250'000);
  // 7.5e9 / 64 = 117187500 whole.
  EXPECT_EQ(state_bytes(psi, paper, {2, 64, 64}).total(), 16'640'625'000);
  EXPECT_EQ(state_bytes(psi, paper, {3, 64, 64}).total(), 1'875'000'000);
}

TEST(MemoryFormulas, shards_are_rounded_up_and_the_padding_is_named) {
  const StateWidths widths{2, 4, 12};
  const StateBytes one = state_bytes(103, widths, {1, 8, 8});
  EXPECT_EQ(one.weights, 206);
  EXPECT_EQ(one.gradients, 412);
  EXPECT_EQ(one.optimizer, 12 * 13);
  EXPECT_EQ(one.padding_elements, 1);
  const StateBytes hybrid = state_bytes(103, widths, {3, 8, 4});
  EXPECT_EQ(hybrid.total(), 18 * 26);
  EXPECT_EQ(hybrid.padding_elements, 1);
  const StateBytes hpz = state_bytes(103, widths, {3, 8, 8, 2});
  EXPECT_EQ(hpz.weights, 2 * 52);
  EXPECT_EQ(hpz.gradients + hpz.optimizer, 16 * 13);
  EXPECT_EQ(state_bytes(103, widths, {0, 8, 8}).padding_elements, 0);
}

TEST(MemoryFormulas, a_70b_model_stage_by_stage) {
  ModelConfig c = find_preset("llama3-70b")->config;
  c.seq_length = 4096;
  c.make_vocab_size_divisible_by = 1;
  EXPECT_NEAR(static_cast<double>(parameter_count(c)), 70.55e9, 5e6);
  EXPECT_NEAR(static_cast<double>(layer_parameters(c)), 855.7e6, 5e4);
  MemoryRequest request;
  request.layers = parallel::make_layer_map(80, 4, 1, 0, 0, {});
  request.activations = {1, 8, SequenceParallel::Yes};
  const double parameters[] = {2.270, 2.139, 2.139, 2.270}, weights[] = {4.23, 3.98, 3.98, 4.23};
  const double gradients[] = {8.46, 7.97, 7.97, 8.46}, plain[] = {25.37, 23.91, 23.91, 25.37};
  const double sharded[] = {12.69, 11.95, 11.95, 12.69}, kept[] = {10.48, 7.86, 5.24, 2.62};
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    const auto ops = ops_of(4, 1, 8, i, parallel::ScheduleKind::OneFOneB);
    request.zero = {};
    const StageMemory m = stage_memory(c, request, ops, i);
    const auto index = static_cast<size_t>(i);
    const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / kGiB; };
    // The vocabulary's share rounds to 2.271; the note cuts it.
    EXPECT_NEAR(static_cast<double>(m.parameters) / 1e9, parameters[index], 1.1e-3);
    EXPECT_NEAR(gib(m.states.weights), weights[index], 5.1e-3);
    EXPECT_NEAR(gib(m.states.gradients), gradients[index], 5.1e-3);
    EXPECT_NEAR(gib(m.states.optimizer), plain[index], 1.01e-2);
    EXPECT_NEAR(gib(m.activations), kept[index], 5.1e-3);
    EXPECT_EQ(m.in_flight, 4 - i);
    // Logits of 128256 ids over 8 ranks, bf16 and fp32, and two hidden tensors.
    const int64_t logits = 6 * int64_t{4096} * 128256 / 8;
    EXPECT_EQ(m.ends, i == 3 ? logits + 4 * 4096 * 8192 / 8 : 0);
    EXPECT_NEAR(gib(logits), 0.37, 5e-3);
    request.zero = {1, 2, 2};
    EXPECT_NEAR(gib(stage_memory(c, request, ops, i).states.optimizer), sharded[index], 5.1e-3);
  }
}

TEST(MemoryFormulas, in_flight_follows_the_schedule) {
  using parallel::ScheduleKind;
  const ModelConfig c = find_preset("t0")->config;
  const auto in_flight = [&](ScheduleKind kind, int p, int v, int m, int position) {
    MemoryRequest request;
    ModelConfig deep = c;
    deep.num_layers = int64_t{p} * v;
    request.layers = parallel::make_layer_map(deep.num_layers, parallel::placement_of({kind, p, v, m}), 0, 0, {});
    return stage_memory(deep, request, ops_of(p, v, m, position, kind), position).in_flight;
  };
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(in_flight(ScheduleKind::GPipe, 4, 1, 8, i), 8);
    EXPECT_EQ(in_flight(ScheduleKind::OneFOneB, 4, 1, 8, i), 4 - i);
    EXPECT_EQ(in_flight(ScheduleKind::OneFOneB, 4, 1, 2, i), std::min(2, 4 - i));
    EXPECT_EQ(in_flight(ScheduleKind::Interleaved, 4, 2, 8, i), 2 * (3 - i) + 4 + 1);
    EXPECT_EQ(in_flight(ScheduleKind::ZeroBubbleH1, 4, 1, 8, i), 4);
    EXPECT_EQ(in_flight(ScheduleKind::ZeroBubbleH2, 4, 1, 8, i), 7);
    EXPECT_EQ(in_flight(ScheduleKind::ZeroBubbleV, 4, 2, 8, i), 8);
  }
}

TEST(MemoryFormulas, full_recomputation_keeps_inputs_of_groups) {
  const ModelConfig c = find_preset("t0")->config;  // h 64, s 32, 4 layers
  const parallel::LayerMap layers = parallel::make_layer_map(4, 1, 1, 0, 0, {});
  const ActivationShape shape{2, 1};
  const int64_t checkpoint = 2 * 32 * 2 * 64, layer = layer_activations(c, shape).total();
  const auto with = [&](RecomputeMethod method, int64_t n) {
    return chunk_activations(c, shape, {RecomputeGranularity::Full, method, n}, layers, 0);
  };
  EXPECT_EQ(with(RecomputeMethod::Uniform, 1).layers, 4 * checkpoint);
  EXPECT_EQ(with(RecomputeMethod::Uniform, 1).working, layer);
  EXPECT_EQ(with(RecomputeMethod::Uniform, 3).layers, 2 * checkpoint);
  EXPECT_EQ(with(RecomputeMethod::Uniform, 3).working, 3 * layer);
  EXPECT_EQ(with(RecomputeMethod::Block, 3).layers, 3 * checkpoint + layer);
  EXPECT_EQ(with(RecomputeMethod::Block, 3).working, layer);
}

TEST(MemoryFormulas, buffers_of_stages_two_and_three) {
  const ModelConfig c = find_preset("t1")->config;
  MemoryRequest request;
  request.layers = parallel::make_layer_map(4, 1, 1, 0, 0, {});
  request.activations = {1, 1};
  request.bucket_parameters = 1000;
  const auto buffers = [&](int stage, int64_t prefetch) {
    request.zero = {stage, 4, 4};
    request.prefetch = prefetch;
    return stage_memory(c, request, ops_of(1, 1, 1, 0, parallel::ScheduleKind::OneFOneB), 0).buffers;
  };
  EXPECT_EQ(buffers(0, 1), 0);
  EXPECT_EQ(buffers(1, 1), 0);
  EXPECT_EQ(buffers(2, 1), 2 * 4 * 1000);
  const int64_t unit = layer_parameters(c);  // larger than 128 x 64 rows of the vocabulary
  ASSERT_GT(unit, c.padded_vocab_size(1) * c.hidden_size);
  EXPECT_EQ(buffers(3, 0), (2 + 4) * unit);
  EXPECT_EQ(buffers(3, 2), (2 * 3 + 4) * unit);
}

}  // namespace
}  // namespace triax::model

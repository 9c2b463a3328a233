// Predictions from costs made by hand: parts that sum exactly, golden steps, agreement with the simulator's own idle
// times, and the closed forms beside them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "io/options/options.h"
#include "io/options/validate.h"
#include "plan/critical_path.h"
#include "plan/hardware_presets.h"
#include "plan/prediction.h"
#include "plan/what_if.h"
#include "train/program_builder.h"

namespace triax::plan {
namespace {

using parallel::IdleCause;
using Words = std::vector<std::string>;

io::RunOptions options_of(Words args, int ranks) {
  const Words always{"--micro-batch-size", "1", "--model", "t1"};
  args.insert(args.begin(), always.begin(), always.end());
  io::RunOptions options = io::parse_options(args).options;
  io::resolve(options, ranks, io::Purpose::Plan);
  return options;
}

int64_t ps(double s) { return std::llround(s * 1e12); }

/// Every stage alike: forward 1 ms, I and W 1 ms each, half of it matrix products.
Costs uniform_costs(const io::RunOptions& options) {
  Costs costs;
  const int p = options.parallel.grid.pipeline;
  const int v = options.parallel.chunks;
  costs.table.pipeline = p;
  costs.table.chunks = v;
  OpParts parts{0.5e-3, 0.2e-3, 0.1e-3, 0.05e-3, 0.15e-3, 0};
  for (double* s : {&parts.gemm_s, &parts.attention_s, &parts.elementwise_s, &parts.launch_s, &parts.tensor_s}) *s /= v;
  for (int i = 0; i < p * v; ++i) {
    costs.stages.push_back({parts, parts, parts, {}});
    costs.table.stages.push_back({ps(parts.total()), ps(parts.total()), ps(parts.total()), 0});
  }
  for (int i = 0; i < p; ++i) costs.table.positions.push_back({0, 0, 0, {0}, {0}, 0});
  costs.table.links = {{0, 0}};
  return costs;
}

/// Any costs, with every kind of op priced.
Costs random_costs(const io::RunOptions& options, unsigned seed) {
  std::mt19937_64 random(seed);
  const auto some = [&](double most) { return std::uniform_real_distribution<double>(0, most)(random); };
  const auto parts = [&] { return OpParts{some(1e-3), some(1e-3), some(1e-3), some(1e-4), some(1e-3), some(1e-3)}; };
  Costs costs = uniform_costs(options);
  for (size_t i = 0; i < costs.stages.size(); ++i) {
    StageParts& s = costs.stages[i];
    s = {parts(), parts(), parts(), parts()};
    costs.table.stages[i] = {ps(s.forward.total()), ps(s.backward_input.total() + s.recompute.total()),
                             ps(s.backward_weight.total()), 0};
  }
  for (parallel::PositionCost& cost : costs.table.positions) {
    cost = {ps(some(1e-4)), ps(some(1e-3)), ps(some(1e-3)), {ps(some(1e-3))}, {ps(some(1e-3))}, ps(some(1e-4))};
  }
  costs.table.links = {{ps(some(1e-4)), 1e9 + some(1e10)}};
  costs.table.message_bytes = 1 << 20;
  costs.table.tied_ps = ps(some(1e-3));
  costs.table.norm_ps = ps(some(1e-3));
  return costs;
}

const bench::Hardware& selene() { return *find_hardware("selene"); }

TEST(Apportion, integers_sum_to_the_whole) {
  using Shares = std::vector<int64_t>;
  EXPECT_EQ(apportion(10, std::array{1.0, 1.0, 1.0}), (Shares{4, 3, 3}));
  EXPECT_EQ(apportion(10, std::array{0.0, 2.0, 1.0}), (Shares{0, 7, 3}));
  EXPECT_EQ(apportion(7, std::array{0.0, 0.0}), (Shares{7, 0}));
  EXPECT_EQ(apportion(0, std::array{1.0, 2.0}), (Shares{0, 0}));
  const Shares large = apportion(1'000'000'000'000'000'003, std::array{0.1, 0.2, 0.3, 0.7});
  EXPECT_EQ(large[0] + large[1] + large[2] + large[3], 1'000'000'000'000'000'003);
}

// 1F1B, p 4, m 8, f = 1 ms, b = 2 ms: 33 ms, of which position i computes 24, fills i + 2 (p - 1 - i) and drains the
// rest of 9 (docs/pipeline.md).
TEST(Prediction, golden_1f1b_by_cause) {
  const io::RunOptions options =
      options_of({"--pipeline-model-parallel-size", "4", "--global-batch-size", "8", "--num-layers", "4"}, 4);
  const Prediction prediction = predict(options, selene(), uniform_costs(options));
  EXPECT_EQ(prediction.step_ps, ps(33e-3));
  const int64_t fills[] = {6, 5, 4, 3};
  for (size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    const TimeSplit& t = prediction.stages[i].time;
    EXPECT_EQ(t[TimePart::Gemm], ps(12e-3));
    EXPECT_EQ(t[TimePart::Attention], ps(4.8e-3));
    EXPECT_EQ(t[TimePart::Elementwise], ps(2.4e-3));
    EXPECT_EQ(t[TimePart::Launch], ps(1.2e-3));
    EXPECT_EQ(t[TimePart::TensorComm], ps(3.6e-3));
    EXPECT_EQ(t[TimePart::BubbleFill], fills[i] * ps(1e-3));
    EXPECT_EQ(t[TimePart::BubbleDrain], (9 - fills[i]) * ps(1e-3));
    EXPECT_EQ(t.total(), prediction.step_ps);
    EXPECT_EQ(t.compute() + t.exposed() + t.bubble() + t[TimePart::Optimizer], t.total());
    EXPECT_EQ(prediction.stages[i].peak_op, fmt::format("{}F{}", i, 3 - i));
  }
  EXPECT_EQ(prediction.time.bubble(), ps(9e-3));
  EXPECT_DOUBLE_EQ(prediction.bubble_of_total, 3.0 / 11);
  EXPECT_DOUBLE_EQ(prediction.tokens_per_s(), 8.0 * static_cast<double>(options.model.seq_length) / 33e-3);
}

// All of 1F1B's chain, by hand: F and B of the last stage for every micro-batch, and the way there and back: 4 + 4 of F
// (1 ms), the rest B (2 ms); with an optimizer of 5 ms behind and 0.25 ms on the wire.
TEST(CriticalPath, golden_1f1b) {
  const io::RunOptions options =
      options_of({"--pipeline-model-parallel-size", "4", "--global-batch-size", "8", "--num-layers", "4"}, 4);
  Costs costs = uniform_costs(options);
  for (parallel::PositionCost& cost : costs.table.positions) cost.optimizer_ps = ps(5e-3);
  const auto sum = [](const CriticalPath& path, const std::string& what) {
    int64_t total = 0;
    for (const PathShare& share : path.shares) total += share.what == what ? share.ps : 0;
    return total;
  };
  CriticalPath path = critical_path(*predict(options, selene(), costs).simulated);
  EXPECT_EQ(path.total_ps(), ps(38e-3));
  EXPECT_EQ(sum(path, "F") + sum(path, "B"), ps(33e-3));
  EXPECT_EQ(sum(path, "OPT"), ps(5e-3));
  costs.table.links = {{ps(0.25e-3), 0}};
  const Prediction slow = predict(options, selene(), costs);
  path = critical_path(*slow.simulated);
  EXPECT_EQ(path.total_ps(), slow.step_ps);
  EXPECT_EQ(slow.step_ps, ps(38e-3 + 2 * 0.25e-3 * (3 * 8 / 4 + 2)));
  EXPECT_EQ(sum(path, "message"), ps(2 * 0.25e-3 * (3 * 8 / 4 + 2)));
}

// Recomputation inside of the backward costs its own time and is named apart; its collectives are tp_comm.
TEST(Prediction, recomputation_is_inside_of_the_backward) {
  const io::RunOptions options = options_of({"--global-batch-size", "2", "--recompute-granularity", "full",
                                             "--recompute-method", "uniform", "--recompute-num-layers", "1"},
                                            1);
  Costs costs = uniform_costs(options);
  costs.stages[0].recompute = costs.stages[0].forward;
  costs.table.stages[0].backward_input_ps += ps(1e-3);
  const Prediction prediction = predict(options, selene(), costs);
  EXPECT_EQ(prediction.step_ps, ps(8e-3));
  EXPECT_EQ(prediction.time[TimePart::Recompute], ps(1.7e-3));
  EXPECT_EQ(prediction.time[TimePart::TensorComm], ps(1.2e-3));
  EXPECT_EQ(prediction.time[TimePart::Gemm], ps(3e-3));
}

struct Layout {
  Words words;
  int ranks;
};

std::vector<Layout> layouts() {
  const auto with = [](Words base, const Words& more) {
    base.insert(base.end(), more.begin(), more.end());
    return base;
  };
  const Words pp4{"--pipeline-model-parallel-size", "4", "--num-layers", "8", "--global-batch-size", "16"};
  std::vector<Layout> all{{{"--global-batch-size", "4"}, 1}};
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    all.push_back({with(pp4, {"--pipeline-schedule", schedule}), 8});
  }
  all.push_back({with(pp4, {"--num-virtual-stages-per-pipeline-rank", "2"}), 4});
  all.push_back({with(pp4, {"--pipeline-schedule", "zb-v", "--num-virtual-stages-per-pipeline-rank", "2"}), 4});
  for (const char* zero : {"0", "1", "2", "3"}) {
    all.push_back({{"--zero-stage", zero, "--global-batch-size", "16"}, 4});
    all.push_back({with(pp4, {"--zero-stage", zero}), 16});
    all.push_back({with(pp4, {"--zero-stage", zero, "--no-overlap-grad-reduce", "--no-overlap-param-gather"}), 16});
  }
  all.push_back({with(pp4, {"--tensor-model-parallel-size", "2", "--scatter-gather-tensors-in-pipeline"}), 8});
  return all;
}

// Whatever the layout and the costs: each position's parts sum to the step, their mean does, and what the simulator
// accounts for waits within the pass is what the parts say.
TEST(Prediction, parts_sum_to_the_step_for_every_layout) {
  unsigned seed = 1;
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(fmt::format("{}", layout.words.back()));
    const io::RunOptions options = options_of(layout.words, layout.ranks);
    const Prediction p = predict(options, selene(), random_costs(options, seed++));
    ASSERT_TRUE(p.simulated);
    EXPECT_EQ(p.step_ps, p.simulated->simulation.makespan_ps);
    EXPECT_EQ(p.time.total(), p.step_ps);
    EXPECT_EQ(critical_path(*p.simulated).total_ps(), p.step_ps);
    for (size_t i = 0; i < p.stages.size(); ++i) {
      const TimeSplit& t = p.stages[i].time;
      const parallel::StageTimes& s = p.simulated->simulation.stages[i];
      EXPECT_EQ(t.total(), p.step_ps);
      EXPECT_EQ(t[TimePart::BubbleFill], s.idle[IdleCause::Fill]);
      EXPECT_EQ(t[TimePart::BubbleImbalance], s.idle[IdleCause::Imbalance]);
      EXPECT_EQ(t[TimePart::BubbleDrain], s.idle[IdleCause::Drain]);
      for (const int64_t ps : t.ps) EXPECT_GE(ps, 0);
    }
  }
}

TEST(Prediction, parts_sum_with_jitter_and_stragglers) {
  const io::RunOptions options = options_of(
      {"--pipeline-model-parallel-size", "4", "--num-layers", "8", "--global-batch-size", "64", "--zero-stage", "1"},
      16);
  PredictionOptions what;
  what.time.jitter.sigma = 0.05;
  what.time.stragglers = {{{1, 2}, 1.3}};
  const Costs costs = random_costs(options, 7);
  int64_t step = 0;
  for (int replica = 0; replica < 4; ++replica) {
    what.recorded_replica = replica;
    const Prediction p = predict(options, selene(), costs, what);
    for (const StagePrediction& stage : p.stages) EXPECT_EQ(stage.time.total(), p.step_ps);
    if (replica > 0) {
      EXPECT_EQ(p.step_ps, step);
    }
    step = p.step_ps;
  }
  EXPECT_GT(step, predict(options, selene(), costs).step_ps);
}

// Where stages are equal and nothing is hidden the two modes agree; both sum.
TEST(Prediction, cheap_is_near_full_and_sums) {
  const std::vector<Layout> cases{
      {{"--global-batch-size", "8", "--zero-stage", "1", "--sequence-parallel", "--tensor-model-parallel-size", "2"},
       4},
      {{"--pipeline-model-parallel-size", "4", "--num-layers", "32", "--global-batch-size", "16"}, 4},
      {{"--pipeline-model-parallel-size", "4", "--num-layers", "32", "--global-batch-size", "16",
        "--num-virtual-stages-per-pipeline-rank", "2"},
       4}};
  for (const Layout& layout : cases) {
    SCOPED_TRACE(layout.words.back());
    io::RunOptions options = options_of(layout.words, layout.ranks);
    options.model.hidden_size = 4096;
    options.model.ffn_hidden_size = 16384;
    PredictionOptions cheap;
    cheap.detail = Detail::Cheap;
    const Prediction estimate = predict(options, selene(), cheap);
    const Prediction full = predict(options, selene());
    EXPECT_EQ(estimate.time.total(), estimate.step_ps);
    EXPECT_EQ(full.time.total(), full.step_ps);
    EXPECT_NEAR(static_cast<double>(estimate.step_ps) / static_cast<double>(full.step_ps), 1, 0.09);
    EXPECT_EQ(estimate.stages[0].bytes(), full.stages[0].bytes());
    EXPECT_FALSE(estimate.simulated);
  }
}

TEST(Prediction, memory_and_the_limit) {
  const io::RunOptions options = options_of({"--global-batch-size", "1"}, 1);
  bench::Hardware small = selene();
  PredictionOptions what;
  what.exact = ExactScope::All;
  const Prediction p = predict(options, small, uniform_costs(options), what);
  ASSERT_TRUE(p.stages[0].exact);
  EXPECT_EQ(p.stages[0].bytes(), p.stages[0].exact->ledger.peak_total + p.stages[0].runtime_bytes);
  EXPECT_EQ(p.stages[0].runtime_bytes, std::llround(1.6 * (1 << 30)));
  EXPECT_TRUE(p.fits());
  small.memory_bytes.value = static_cast<double>(p.stages[0].bytes() - 1);
  EXPECT_FALSE(predict(options, small, uniform_costs(options), what).fits());
}

// GPT-3 175B, t 8, p 8, m 64: MFU of the papers' convention from the step's time alone (Korthikanti 2022 table 5:
// 18.13 s is 38.97 % with their eq. 7).
TEST(Prediction, utilization_in_the_papers_convention) {
  Prediction p;
  model::ModelConfig gpt;
  gpt.num_layers = 96;
  gpt.hidden_size = 12288;
  gpt.ffn_hidden_size = 4 * 12288;
  gpt.num_attention_heads = gpt.num_query_groups = 96;
  gpt.kv_channels = 128;
  gpt.seq_length = 2048;
  gpt.vocab_size = 51200;
  p.flops_dense = model::step_flops(gpt, 64, 51200, model::AttentionCount::Dense);
  p.ranks = 64;
  p.peak_flops = 312e12;
  p.step_ps = ps(18.13);
  EXPECT_NEAR(100 * p.utilization(p.flops_dense.model), 38.97, 0.02);
  p.tokens_per_step = 64 * 2048;
  p.train_tokens = 300e9;
  EXPECT_NEAR(p.training_s() / 86400, 300e9 / (64 * 2048) * 18.13 / 86400, 1e-6);
  EXPECT_NEAR(p.device_hours(), p.training_s() / 3600 * 64, 1e-6);
}

TEST(Traffic, by_formula_and_by_link) {
  // t1 on 2 x 2 x 4 = 16 ranks of 8-device nodes: tp and dp inside of a node, the pipeline's one border between nodes.
  const io::RunOptions options = options_of({"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2",
                                             "--global-batch-size", "16", "--sequence-parallel"},
                                            16);
  Costs costs = uniform_costs(options);
  costs.table.message_bytes = 1000;
  const Prediction p = predict(options, selene(), costs);
  const model::ModelConfig& model = options.model;
  const double hidden = static_cast<double>(model.seq_length * model.hidden_size) * 2;
  const double m = 4, reduces = 4.0 * static_cast<double>(model.num_layers) + 2;
  EXPECT_DOUBLE_EQ(p.traffic.tensor, 8 * m * (reduces * hidden + 3 * 4 * static_cast<double>(model.seq_length)));
  EXPECT_DOUBLE_EQ(p.traffic.pipeline, 8 * m * 2 * 1000);
  ASSERT_EQ(p.traffic.by_link.size(), 2u);
  EXPECT_EQ(p.traffic.by_link[1], (std::pair<std::string, double>{"infiniband", p.traffic.pipeline}));
  EXPECT_DOUBLE_EQ(p.traffic.by_link[0].second, p.traffic.tensor + p.traffic.data);
  // One replica's share: an all-reduce of all fp32 gradients over 4 ranks.
  EXPECT_GT(p.traffic.data, 0);
  const parallel::ShardPlan plan = train::shard_plan_of(options, 0);
  double elements = 0;
  for (int i = 0; i < 2; ++i) {
    for (const auto& block : train::shard_plan_of(options, i).blocks)
      elements += static_cast<double>(block.range.size());
  }
  EXPECT_DOUBLE_EQ(p.traffic.data, 8 * 1.5 * 4 * elements);
}

TEST(Assumed, constants_of_the_program_and_stand_ins_are_named) {
  const io::RunOptions options = options_of({"--global-batch-size", "4", "--bf16"}, 1);
  bench::Hardware h = selene();
  h.kernels.erase("attention_backward");
  std::vector<std::string> names;
  for (const AssumedConstant& c : assumed_that_matter(options, h, 1e-9)) {
    names.push_back(c.name);
    EXPECT_EQ(c.constant.origin, bench::Origin::Assumed);
    EXPECT_FALSE(c.constant.source.empty()) << c.name;
  }
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  EXPECT_TRUE(has("program.logit_bytes"));
  EXPECT_TRUE(has("kernels.attention_backward.per_s"));
  EXPECT_FALSE(has("kernels.attention.per_s"));  // fitted
}

TEST(WhatIf, scales_what_it_names_and_nothing_else) {
  bench::Hardware h = selene();
  using Op = comm::Operation;
  h.collectives = {{Op::AllReduce, 8, 1, 1024, 10e-6},
                   {Op::AllReduce, 8, 1, 1 << 20, 30e-6},
                   {Op::AllReduce, 16, 2, 1024, 40e-6},
                   {Op::AllReduce, 16, 2, 1 << 20, 100e-6}};
  const bench::Hardware changed = scaled(h, {parse_bandwidth_factors("nvlink=2,ib=0.5"), 1.5});
  EXPECT_DOUBLE_EQ(changed.links[0].bytes_per_s.value, 2 * h.links[0].bytes_per_s.value);
  EXPECT_DOUBLE_EQ(changed.links[1].bytes_per_s.value, h.links[1].bytes_per_s.value / 2);
  EXPECT_DOUBLE_EQ(changed.links[1].latency_s.value, h.links[1].latency_s.value);
  EXPECT_DOUBLE_EQ(changed.peak_flops.at(DType::BFloat16).value, 468e12);
  EXPECT_DOUBLE_EQ(changed.kernels.at("gemm").per_s.value, 1.5 * h.kernels.at("gemm").per_s.value);
  EXPECT_DOUBLE_EQ(changed.kernels.at("norm").per_s.value, h.kernels.at("norm").per_s.value);
  EXPECT_DOUBLE_EQ(changed.collectives[0].time_s, 10e-6);
  EXPECT_DOUBLE_EQ(changed.collectives[1].time_s, 20e-6);
  EXPECT_DOUBLE_EQ(changed.collectives[3].time_s, 160e-6);
  for (const char* wrong : {"nvlink", "nvlink=0", "nvlink=x", "=2"}) {
    EXPECT_THROW(parse_bandwidth_factors(wrong), ConfigError) << wrong;
  }
  EXPECT_THROW(scaled(h, {{{"pcie", 2}}, 1}), ConfigError);
}

}  // namespace
}  // namespace triax::plan

// Bytes on the wire and bytes in memory of a step, per rank, group and operation, against the formulas of the papers:
// ZeRO (arXiv 1910.02054 section 7), hybrid sharding, hpZ, Megatron's tensor and sequence parallelism (1909.08053,
// 2205.05198), pipeline messages. All integers, all exact. Run with 2, 4 and 8 ranks.
#include "tests/mpi/parity.h"
#include "train/data_traffic.h"

namespace triax::test {
namespace {

using comm::Operation;
using parallel::KeepGathered;
using parallel::SequenceParallel;

constexpr int64_t kWidth = 8;  // fp64

/// Payload bytes by group and operation; nothing where there was no call.
using Volume = std::map<std::pair<std::string, Operation>, int64_t>;

Volume payload(const comm::Ledger& ledger) {
  Volume volume;
  for (const auto& [key, entry] : ledger.snapshot()) volume[key] = entry.payload_bytes;
  return volume;
}

double sent_over_data(const comm::Ledger& ledger) {
  double sent = 0;
  for (const auto& [key, entry] : ledger.snapshot()) {
    if (key.first.starts_with("dp")) sent += entry.sent_bytes;
  }
  return sent;
}

/// Of the second step, by the groups that carry tensors of the model; what was said before the run is what dp sends.
Volume step_volume(TinyRun& run) {
  run.step();
  Volume before = payload(run.grid().ledger());
  const double sent_before = sent_over_data(run.grid().ledger());
  run.step();
  const train::Trainer& trainer = run.trainer();
  train::TrafficWidths widths{kWidth, kWidth, 0};
  if (run.options().parallel.zero_quantized_weights) widths.code_block = run.options().parallel.compression.block();
  const train::DataTraffic said = train::data_traffic(trainer.program(), trainer.gradient_sync().plan().shards,
                                                      run.grid().coord().pipeline, widths);
  EXPECT_DOUBLE_EQ(said.total(), sent_over_data(run.grid().ledger()) - sent_before);
  Volume step;
  for (const auto& [key, bytes] : payload(run.grid().ledger())) {
    if (bytes != before[key] && key.first != "world" && key.first != "model_parallel") step[key] = bytes - before[key];
  }
  return step;
}

io::RunOptions zero_options(const Layout& layout, int stage, int accumulation) {
  io::RunOptions o = tiny_options(layout);
  o.parallel.zero_stage = stage;
  o.parallel.zero_persistence_threshold = 0;
  o.batch.global_batch_size = layout.dp * accumulation;
  return o;
}

/// Elements, padding included, of the blocks of units of one kind.
struct Blocks {
  int64_t all = 0, embedding = 0, layers = 0, head = 0;
};
Blocks blocks_of(TinyRun& run) {
  Blocks sum;
  const auto& units = run.trainer().store().units();
  for (const parallel::ShardBlock& b : run.trainer().gradient_sync().plan().shards.blocks) {
    const int64_t n = b.range.size();
    const std::string& name = units[static_cast<size_t>(b.units.front())].name;
    sum.all += n;
    (name == "embedding" ? sum.embedding : name == "head" ? sum.head : sum.layers) += n;
  }
  return sum;
}

/// n ranks of dp, one tp and pp rank: all of the model on each.
TEST(ZeroVolume, data_parallel_bytes_of_every_stage) {
  const int d = session().size();
  for (const TinyModel model : {TinyModel::T0, TinyModel::T1}) {
    for (const int m : {1, 3}) {
      const Layout layout{model, Head::Untied, 1, 1, 1, d};
      const auto volume_of = [&](io::RunOptions options, Blocks& blocks) {
        TinyRun run(session(), std::move(options));
        const Volume volume = step_volume(run);
        blocks = blocks_of(run);
        return volume;
      };
      SCOPED_TRACE(fmt::format("m {}", m));
      Blocks b;
      // Stage 0: one all-reduce: 2 (d-1)/d psi per rank on the wire.
      Volume volume = volume_of(zero_options(layout, 0, m), b);
      EXPECT_EQ(volume, (Volume{{{"dp", Operation::AllReduce}, b.all * kWidth}}));
      // Stage 1: reduce-scatter and all-gather: the same 2 psi.
      volume = volume_of(zero_options(layout, 1, m), b);
      EXPECT_EQ(volume, (Volume{{{"dp", Operation::ReduceScatter}, b.all * kWidth},
                                {{"dp", Operation::AllGather}, b.all * kWidth}}));
      // Stage 2: (m + 1) psi.
      volume = volume_of(zero_options(layout, 2, m), b);
      EXPECT_EQ(volume, (Volume{{{"dp", Operation::ReduceScatter}, m * b.all * kWidth},
                                {{"dp", Operation::AllGather}, b.all * kWidth}}));
      // Stage 3: 3 m psi, less the embedding's backward, which needs no weights, and the head's, whose weights are
      // still there from its forward.
      volume = volume_of(zero_options(layout, 3, m), b);
      EXPECT_EQ(volume, (Volume{{{"dp", Operation::ReduceScatter}, m * b.all * kWidth},
                                {{"dp", Operation::AllGather}, m * (b.all + b.layers) * kWidth}}));
      EXPECT_EQ(b.all, b.embedding + b.layers + b.head);
      // Kept to the backward: 2 m psi; kept over the step: (m + 1) psi.
      io::RunOptions options = zero_options(layout, 3, m);
      options.parallel.zero_keep = KeepGathered::Backward;
      volume = volume_of(options, b);
      EXPECT_EQ((volume[{"dp", Operation::AllGather}]), m * b.all * kWidth);
      options.parallel.zero_keep = KeepGathered::Step;
      volume = volume_of(options, b);
      EXPECT_EQ((volume[{"dp", Operation::AllGather}]), b.all * kWidth);
      EXPECT_EQ((volume[{"dp", Operation::ReduceScatter}]), m * b.all * kWidth);
    }
  }
}

/// Shards over groups of g, replicas across: inside as ZeRO over g, then one all-reduce of 1/g of the gradients.
TEST(ZeroVolume, hybrid_and_hpz_bytes) {
  const int d = session().size();
  if (d < 4) GTEST_SKIP() << "needs a shard group within dp: runs with 4 and 8 ranks";
  const int g = 2;
  const int m = 2;
  const Layout layout{TinyModel::T1, Head::Untied, 1, 1, 1, d};
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    io::RunOptions options = zero_options(layout, stage, m);
    options.parallel.zero_shard_group = g;
    TinyRun run(session(), options);
    const Volume volume = step_volume(run);
    const Blocks b = blocks_of(run);
    const int64_t gathered = stage == 3 ? m * (b.all + b.layers) : b.all;
    EXPECT_EQ(volume, (Volume{{{"dp_shard", Operation::ReduceScatter}, (stage == 1 ? 1 : m) * b.all * kWidth},
                              {{"dp_shard", Operation::AllGather}, gathered * kWidth},
                              {{"dp_replica", Operation::AllReduce}, b.all / g * kWidth}}));
  }
  io::RunOptions options = zero_options(layout, 3, m);
  options.parallel.zero_hpz = g;
  TinyRun run(session(), options);
  const Volume volume = step_volume(run);
  const Blocks b = blocks_of(run);
  // hpZ: weights move inside the group but for one gather across in a step; gradients are reduced over all of dp.
  EXPECT_EQ(volume, (Volume{{{"dp_shard", Operation::ReduceScatter}, m * b.all * kWidth},
                            {{"dp_replica", Operation::ReduceScatter}, m * b.all / g * kWidth},
                            {{"dp_shard", Operation::AllGather}, m * (b.all + b.layers) * kWidth},
                            {{"dp_replica", Operation::AllGather}, b.all / g * kWidth}}));
}

/// qwZ: a gather carries a byte per element and a scale per block. The loss stays near that of exact weights, and all
/// ranks compute with the same bits.
TEST(ZeroVolume, quantized_weights) {
  const int d = session().size();
  io::RunOptions options = zero_options({TinyModel::T1, Head::Untied, 1, 1, 1, d}, 3, 2);
  TinyRun exact(session(), options);
  const double reference = exact.step().totals.loss;
  options.parallel.zero_quantized_weights = true;
  TinyRun coded(session(), options);
  const double loss = coded.step().totals.loss;
  EXPECT_NE(loss, reference);
  EXPECT_NEAR(loss, reference, 1e-2 * reference);
  TinyRun run(session(), options);
  const Volume volume = step_volume(run);  // what is said before equals what is sent
  const Blocks b = blocks_of(run);
  const int64_t exact_bytes = 2 * (b.all + b.layers) * kWidth;
  EXPECT_LT((volume.at({"dp", Operation::AllGather})), exact_bytes / 6);
  expect_forecast_memory(run);
}

/// Small tensors that stay resident cost one gather in a step.
TEST(ZeroVolume, resident_tensors_are_gathered_once) {
  const int d = session().size();
  const int m = 3;
  io::RunOptions options = zero_options({TinyModel::T0, Head::Untied, 1, 1, 1, d}, 3, m);
  options.parallel.zero_persistence_threshold = 1000;  // norms and biases
  TinyRun run(session(), options);
  const Volume volume = step_volume(run);
  int64_t resident = 0, once = 0, twice = 0;
  const auto& units = run.trainer().store().units();
  for (const parallel::ShardBlock& b : run.trainer().gradient_sync().plan().shards.blocks) {
    const bool layer = units[static_cast<size_t>(b.units.front())].name.starts_with("layer");
    (!b.gathered ? resident : layer ? twice : once) += b.range.size();
  }
  EXPECT_GT(resident, 0);
  EXPECT_EQ((volume.at({"dp", Operation::AllGather})), (resident + m * (once + 2 * twice)) * kWidth);
}

/// Parameters, gradients and optimizer states of a rank, to the byte: (w + g + o) psi with o = 2 moments in fp64 (a
/// weight is its own master), each shared among the ranks that the stage says.
TEST(ZeroVolume, memory_of_states_is_the_formula) {
  const int d = session().size();
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    TinyRun run(session(), zero_options({TinyModel::T1, Head::Untied, 1, 1, 1, d}, stage, 1));
    run.step();
    const int64_t psi = blocks_of(run).all;  // padding included
    const auto live = [&](MemoryCategory c) { return run.arena().ledger().live[static_cast<size_t>(c)]; };
    EXPECT_EQ(live(MemoryCategory::Parameters), kWidth * psi / (stage == 3 ? d : 1));
    EXPECT_EQ(live(MemoryCategory::Gradients), kWidth * psi / (stage >= 2 ? d : 1));
    EXPECT_EQ(live(MemoryCategory::Optimizer), 2 * kWidth * psi / (stage >= 1 ? d : 1));
    // The padding: alignment of each group of tensors, of each block, and rows of the vocabulary.
    int64_t elements = 0;
    for (const parallel::Parameter& p : run.trainer().store().parameters()) elements += p.numel;
    const auto blocks = static_cast<int64_t>(run.trainer().gradient_sync().plan().shards.blocks.size());
    const auto groups = static_cast<int64_t>(run.trainer().store().groups().size());
    EXPECT_GE(psi, elements);
    EXPECT_LE(psi - elements, 31 * groups + 32 * d * blocks);
  }
  // bf16 with fp32 gradients, masters and moments: 2 + 4 + 12 bytes per parameter.
  io::RunOptions options = zero_options({TinyModel::T1, Head::Untied, 1, 1, 1, d}, 1, 1);
  options.control.precision = io::Precision::Bf16;
  TinyRun run(session(), options);
  run.step();
  const int64_t psi = blocks_of(run).all;
  EXPECT_EQ(run.arena().ledger().live[static_cast<size_t>(MemoryCategory::Parameters)], 2 * psi);
  EXPECT_EQ(run.arena().ledger().live[static_cast<size_t>(MemoryCategory::Gradients)], 4 * psi);
  EXPECT_EQ(run.arena().ledger().live[static_cast<size_t>(MemoryCategory::Optimizer)], 12 * psi / d);
}

/// t ranks of tp: per layer and micro-batch 4 all-reduces of T h; under sequence parallelism each becomes a
/// reduce-scatter and an all-gather of T h, and the two column-parallel layers gather their input once more for the
/// weight gradient.
TEST(ZeroVolume, tensor_parallel_bytes) {
  const int t = std::min(session().size(), 4);
  const int d = session().size() / t;
  const int m = 2;
  for (const SequenceParallel sp : {SequenceParallel::No, SequenceParallel::Yes}) {
    Layout layout{TinyModel::T0, Head::Untied, t, 1, 1, d, sp};
    TinyRun run(session(), zero_options(layout, 0, m));
    const Volume volume = step_volume(run);
    const model::ModelConfig& c = run.options().model;
    const int64_t tokens = c.seq_length * run.options().batch.micro_batch_size;
    const int64_t full = tokens * c.hidden_size * kWidth;
    const int64_t loss = 3 * tokens * kWidth;  // largest logit, then sum and target logit in one
    const int64_t layers = c.num_layers;
    const auto of = [&](Operation op) {
      const auto found = volume.find({"tp", op});
      return found == volume.end() ? 0 : found->second;
    };
    if (sp == SequenceParallel::No) {
      // The embedding's output and the gradient of the head's input are sums as well.
      EXPECT_EQ(of(Operation::AllReduce), m * ((4 * layers + 2) * full + loss));
      EXPECT_EQ(of(Operation::AllGather), 0);
      EXPECT_EQ(of(Operation::ReduceScatter), 0);
      continue;
    }
    int64_t partial = 0;  // gradients of norms and biases behind row-parallel layers, once in a step
    for (const parallel::Parameter& p : run.trainer().store().parameters()) {
      if (p.spec.gradient_sum == parallel::GradientSum::Tensor) partial += p.numel * kWidth;
    }
    EXPECT_EQ(of(Operation::AllReduce), m * loss + partial);
    EXPECT_EQ(of(Operation::ReduceScatter), m * (4 * layers + 2) * full);
    // 2 forward, 2 backward, 2 again per layer; head: its input, forward and again; embedding: its gradient.
    EXPECT_EQ(of(Operation::AllGather), m * (6 * layers + 3) * full);
  }
}

/// Each micro-batch and boundary: an activation one way, a gradient the other; 1/t of it under sequence parallelism.
TEST(ZeroVolume, pipeline_bytes) {
  const int p = std::min(session().size(), 4);
  const int m = 4;
  const Layout layout{TinyModel::T1, Head::Untied, 1, p, 1, session().size() / p};
  TinyRun run(session(), zero_options(layout, 3, m));
  const Volume volume = step_volume(run);
  const model::ModelConfig& c = run.options().model;
  const int64_t message = c.seq_length * c.hidden_size * kWidth;
  const int position = run.grid().coord().pipeline;
  const int64_t neighbours = (position > 0 ? 1 : 0) + (position < p - 1 ? 1 : 0);
  EXPECT_EQ((volume.at({"pp", Operation::Send})), m * neighbours * message);
}

/// In slices: each tp rank sends 1/t of every message, and gathers what came.
TEST(ZeroVolume, pipeline_bytes_in_slices) {
  if (session().size() < 4) GTEST_SKIP() << "needs tp x pp: runs with 4 and 8 ranks";
  const int t = 2;
  const int m = 4;
  io::RunOptions options = zero_options({TinyModel::T1, Head::Untied, t, 2, 1, session().size() / 4}, 0, m);
  TinyRun whole(session(), options);
  const Volume before = step_volume(whole);
  options.parallel.scatter_gather = true;
  TinyRun sliced(session(), options);
  const Volume after = step_volume(sliced);
  const model::ModelConfig& c = sliced.options().model;
  const int64_t message = c.seq_length * c.hidden_size * kWidth;
  EXPECT_EQ((before.at({"pp", Operation::Send})), m * message);
  EXPECT_EQ((after.at({"pp", Operation::Send})), m * message / t);
  EXPECT_EQ((after.at({"tp", Operation::AllGather})), m * message);
  EXPECT_EQ((after.at({"tp", Operation::AllReduce})), (before.at({"tp", Operation::AllReduce})));
}

/// Every tp call belongs to a kind of layer, and the kinds add up to the axis.
TEST(ZeroVolume, kinds_of_layers_add_up_to_tp) {
  const int t = std::min(session().size(), 4);
  for (const SequenceParallel sp : {SequenceParallel::No, SequenceParallel::Yes}) {
    TinyRun run(session(), zero_options({TinyModel::T0, Head::Untied, t, 1, 1, session().size() / t, sp}, 0, 2));
    run.step();
    std::map<Operation, int64_t> kinds;
    std::map<std::string, int64_t> of_kind;
    for (const auto& [key, entry] : run.grid().ledger().labelled()) {
      kinds[key.second] += entry.payload_bytes;
      of_kind[key.first] += entry.payload_bytes;
    }
    std::map<Operation, int64_t> axis;
    for (const auto& [key, entry] : run.grid().ledger().snapshot()) {
      if (key.first == "tp") axis[key.second] += entry.payload_bytes;
    }
    EXPECT_EQ(kinds, axis);
    // Attention and MLP send alike in each layer; under SP the norms' gradients are summed once after the last unit.
    EXPECT_EQ(of_kind.at("attention"), of_kind.at("mlp"));
    EXPECT_GT(of_kind.at("head"), 0);
  }
}

}  // namespace
}  // namespace triax::test

// The cost model: tables interpolate through what was measured, the closed form of a step agrees with the simulation of
// the same costs, and what is asked for more of costs more.
#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "io/options/options.h"
#include "io/options/validate.h"
#include "parallel/simulator.h"
#include "plan/cost_model.h"
#include "plan/hardware_presets.h"
#include "plan/step_time.h"
#include "train/program_builder.h"

namespace triax::plan {
namespace {

io::RunOptions run_of(const std::string& words, int world) {
  std::vector<std::string> list;
  std::istringstream stream(words);
  for (std::string word; stream >> word;) list.push_back(word);
  io::RunOptions options = io::parse_options(list).options;
  io::resolve(options, world, io::Purpose::Plan);
  return options;
}

double simulated_s(const io::RunOptions& options, const bench::Hardware& hardware) {
  const parallel::ProgramOptions program = train::program_options(options);
  const Costs costs = costs_of(options, hardware, program);
  parallel::SimulationOptions simulation;
  simulation.replicas = options.parallel.grid.data;
  return static_cast<double>(
             parallel::simulate(parallel::make_training_program(program), costs.table, simulation).makespan_ps) *
         1e-12;
}

const std::string kModel =
    "--num-layers 16 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--vocab-size 50257 --bf16 --mock-data --lr 1e-4 --train-iters 1 ";

TEST(StepTime, AgreesWithTheSimulationOfTheSameCosts) {
  const bench::Hardware& a100 = *find_hardware("a100-80gb");
  const struct {
    const char* words;
    int world;
    double tolerance;
  } cases[] = {
      {"--micro-batch-size 2 --global-batch-size 16", 1, 1e-3},
      {"--micro-batch-size 2 --global-batch-size 16 --tensor-model-parallel-size 4", 4, 1e-3},
      {"--micro-batch-size 2 --global-batch-size 16 --tensor-model-parallel-size 4 --sequence-parallel", 4, 5e-3},
      {"--micro-batch-size 1 --global-batch-size 32 --pipeline-model-parallel-size 4", 4, 0.03},
      {"--micro-batch-size 1 --global-batch-size 32 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 "
       "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
       8, 0.03},
      {"--micro-batch-size 1 --global-batch-size 32 --pipeline-model-parallel-size 4 "
       "--num-virtual-stages-per-pipeline-rank 2",
       4, 0.05},
      {"--micro-batch-size 1 --global-batch-size 128 --tensor-model-parallel-size 2 --zero-stage 1", 16, 0.03},
      {"--micro-batch-size 1 --global-batch-size 64 --zero-stage 3", 16, 1e-2},
      {"--micro-batch-size 1 --global-batch-size 32 --pipeline-model-parallel-size 4 --pipeline-schedule zb-h1", 4,
       0.05},
  };
  for (const auto& c : cases) {
    const io::RunOptions options = run_of(kModel + c.words, c.world);
    const StepShape shape = shape_of(options);
    const double closed = step_time(Pricing(a100, *find_software("triax"), shape.dtype), shape).step_s;
    const double simulated = simulated_s(options, a100);
    EXPECT_NEAR(closed / simulated, 1, c.tolerance) << c.words;
  }
}

TEST(StepTime, ZeroBubbleSchedulesAreBoundByTheLastMicroBatchWhereThereAreFew) {
  const bench::Hardware& a100 = *find_hardware("a100-80gb");
  const struct {
    const char* schedule;
    double few, many;  // tolerance below 8 micro-batches on 8 positions, and from there on
  } cases[] = {
      {"zb-h1", 0.01, 0.09}, {"zb-h2", 0.01, 0.02}, {"zb-v --num-virtual-stages-per-pipeline-rank 2", 0.19, 0.1}};
  for (const auto& c : cases) {
    for (const int batch : {1, 2, 4, 8, 16, 32}) {
      const std::string words =
          std::string("--micro-batch-size 1 --pipeline-model-parallel-size 8 --pipeline-schedule ") + c.schedule +
          " --global-batch-size " + std::to_string(batch);
      const io::RunOptions options = run_of(kModel + words, 8);
      const StepShape shape = shape_of(options);
      const double closed = step_time(Pricing(a100, *find_software("triax"), shape.dtype), shape).step_s;
      EXPECT_NEAR(closed / simulated_s(options, a100), 1, batch < 8 ? c.few : c.many) << words;
    }
  }
}

bench::GemmPoint gemm_point(bench::GemmLayout layout, int64_t m, int64_t n, int64_t k, double time_s) {
  bench::GemmPoint p;
  p.dtype = DType::BFloat16;
  p.layout = layout;
  p.m = m;
  p.n = n;
  p.k = k;
  p.time_s = time_s;
  return p;
}

TEST(DeviceTimes, MeasuredGemmsDecideAlongTheTokens) {
  bench::Hardware h = *find_hardware("a100-80gb");
  // One point is slower than the next: time never falls with the size.
  h.gemms = {gemm_point(bench::GemmLayout::TN, 1024, 4096, 1024, 60e-6),
             gemm_point(bench::GemmLayout::TN, 2048, 4096, 1024, 130e-6),
             gemm_point(bench::GemmLayout::TN, 4096, 4096, 1024, 120e-6),
             gemm_point(bench::GemmLayout::NT, 4096, 1024, 2048, 90e-6),
             gemm_point(bench::GemmLayout::NT, 4096, 1024, 4096, 150e-6)};
  const DeviceTimes device(h, DType::BFloat16);
  const auto forward = [&](double m) { return device.gemm_s({bench::GemmLayout::TN, false, m, 4096, 1024}); };
  EXPECT_DOUBLE_EQ(forward(1024), 60e-6);
  EXPECT_DOUBLE_EQ(forward(4096), 120e-6);
  EXPECT_DOUBLE_EQ(forward(2048), 120e-6);
  EXPECT_DOUBLE_EQ(forward(1536), 90e-6);
  EXPECT_DOUBLE_EQ(device.gemm_s({bench::GemmLayout::NT, true, 4096, 1024, 3072}), 120e-6);
  double last = 0;
  for (double m = 1024; m <= 4096; m += 128) {
    EXPECT_GE(forward(m), last);
    last = forward(m);
  }
}

TEST(CollectiveTimes, GroupsOfAnAxisShareTheNodesPorts) {
  EXPECT_EQ(place_of(8, 1, 8, 64), (GroupPlace{8, 1, 1}));
  EXPECT_EQ(place_of(16, 1, 8, 64), (GroupPlace{16, 2, 1}));
  EXPECT_EQ(place_of(8, 8, 8, 64), (GroupPlace{8, 8, 8}));
  EXPECT_EQ(place_of(16, 2, 8, 64), (GroupPlace{16, 4, 2, 2}));
  EXPECT_EQ(place_of(4, 2, 8, 64), (GroupPlace{4, 1, 2}));
  bench::Hardware wires = *find_hardware("a100-80gb");
  for (const char* name :
       {"port_share", "collective_base_s", "collective_copy_s_per_byte", "collective_fill_s_per_byte"}) {
    wires.constants.erase(name);
  }
  const CollectiveTimes times(wires);
  const double bytes = 8e9;
  const auto all_reduce = [&](GroupPlace place) { return times.time_s(comm::Operation::AllReduce, place, bytes); };
  // One rank of each of 8 nodes, eight such groups: a port each; alone it would have all eight.
  EXPECT_NEAR(all_reduce({8, 8, 8}) / (2 * 7.0 / 8 * bytes / 24e9), 1, 0.01);
  EXPECT_NEAR(all_reduce({8, 8, 1}) * 8 / all_reduce({8, 8, 8}), 1, 0.01);
  EXPECT_DOUBLE_EQ(all_reduce({1, 1, 1}), 0);
  EXPECT_NEAR(times.time_s(comm::Operation::AllGather, {8, 1, 1}, bytes) / all_reduce({8, 1, 1}), 0.5, 0.01);
}

TEST(CollectiveTimes, RingsThatCrossSwitchesLoseAShareOfThePorts) {
  CollectiveTimes times(*find_hardware("a100-80gb"));
  const auto all_reduce = [&](int ranks, int stride) {
    return times.time_s(comm::Operation::AllReduce, place_of(ranks, stride, 8, 64), 8e9);
  };
  // dp of t = 1, 2, 4, 8: all eight devices of a node, one of each switch, every second of those, one.
  const double whole[] = {all_reduce(64, 1), all_reduce(32, 2), all_reduce(16, 4), all_reduce(8, 8)};
  times.crossing_share = 0.25;
  EXPECT_DOUBLE_EQ(all_reduce(64, 1), whole[0]);
  EXPECT_NEAR(all_reduce(32, 2) / whole[1], 4, 0.2);
  EXPECT_NEAR(all_reduce(16, 4) / whole[2], 4, 0.2);
  EXPECT_DOUBLE_EQ(all_reduce(8, 8), whole[3]);
  EXPECT_DOUBLE_EQ(all_reduce(2, 4), CollectiveTimes(*find_hardware("a100-80gb"))
                                         .time_s(comm::Operation::AllReduce, {2, 1, 4}, 8e9));  // inside a node
}

TEST(CollectiveTimes, LongMessagesRunFullPastTheBuffers) {
  CollectiveTimes times(*find_hardware("a100-80gb"));
  times.copy_s_per_byte = 0;
  times.fill_bytes = 100e6;
  times.fill_s_per_byte = 1e-12;
  const auto slope = [&](double from, double to) {
    const auto at = [&](double bytes) { return times.time_s(comm::Operation::AllReduce, {8, 1, 1}, bytes); };
    return (at(to) - at(from)) / (to - from);
  };
  const double wire = 2 * 7.0 / 8 / times.inner.bytes_per_s;
  EXPECT_NEAR(slope(10e6, 90e6) / (wire + 1e-12), 1, 1e-9);
  EXPECT_NEAR(slope(110e6, 900e6) / wire, 1, 1e-9);
}

TEST(DeviceTimes, RowsThatBeginAtOddElementsAreReadOneAtATime) {
  DeviceTimes device(*find_hardware("a100-80gb"), DType::BFloat16);
  device.gemm_floor_s = 0;
  device.gemm_bytes_per_s = 1e30;
  device.multiprocessors = 0;
  device.unaligned_share = 0.125;
  const auto over_aligned = [&](bench::GemmLayout layout, double m, double n, double k) {
    return device.gemm_s({layout, false, m, n, k}) * device.gemm_flops / (2 * m * n * k);
  };
  using enum bench::GemmLayout;
  EXPECT_NEAR(over_aligned(TN, 4095, 50264, 1024), 1, 1e-12);  // tokens are no row's length
  EXPECT_NEAR(over_aligned(TN, 4096, 50260, 1024), 2, 1e-12);
  EXPECT_NEAR(over_aligned(NN, 4096, 1024, 50258), 4, 1e-12);
  EXPECT_NEAR(over_aligned(NT, 50257, 1024, 4096), 8, 1e-12);
}

TEST(DeviceTimes, ProductsTakeWholeWavesOfTiles) {
  DeviceTimes device(*find_hardware("a100-80gb"), DType::BFloat16);
  device.gemm_floor_s = 0;
  device.gemm_bytes_per_s = 1e30;
  device.small_tile_share = 0.9;
  device.split_depth = 256;
  const auto over_bare = [&](double m, double n, double k) {
    return device.gemm_s({bench::GemmLayout::TN, false, m, n, k}) * device.gemm_flops / (2 * m * n * k);
  };
  EXPECT_NEAR(over_bare(256 * 108, 128, 512), 1, 1e-12);
  // One tile more: two waves of 256 x 128 (216/109), three of 128 x 128 at 0.9, five of 128 x 64 at 0.81.
  EXPECT_NEAR(over_bare(256 * 109, 128, 512), 540.0 / 436 / 0.81, 1e-12);
  // 27 tiles leave three quarters idle, unless a deep sum is cut in four.
  EXPECT_NEAR(over_bare(256 * 27, 128, 1024), 1 / 0.81, 1e-12);
  EXPECT_NEAR(over_bare(256 * 27, 128, 16384), 1 + 256 * 3.0 / 16384, 1e-12);
  device.multiprocessors = 0;
  EXPECT_NEAR(over_bare(256 * 109, 128, 512), 1, 1e-12);
}

TEST(DeviceTimes, MachineWithoutMemoryBandwidthIsRefused) {
  bench::Hardware h = *find_hardware("a100-80gb");
  h.memory_bytes_per_s.value = 0;
  try {
    DeviceTimes(h, DType::BFloat16);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("memory_bytes_per_s"), std::string::npos) << error.what();
  }
}

StepShape zero3_shape() {
  StepShape s;
  s.layers = 6;
  s.hidden = 2048;
  s.ffn = 8192;
  s.heads = s.kv_heads = 16;
  s.head_size = 128;
  s.seq = 2048;
  s.vocab = 51200;
  s.pipeline = 3;
  s.data = s.shard_group = 16;
  s.zero = 3;
  s.num_micro_batches = 4;
  s.tied = false;
  s.overlap_grad_reduce = s.overlap_param_gather = false;
  return s;
}

double all_shards_s(const Pricing& p, const StepShape& s, int position) {
  const auto layers = static_cast<double>(layers_of_position(s, position));
  const LayerCosts::Unit t = shard_times(p, s, layer_costs(p, s), layers, position, s.pipeline);
  return t.forward_s + t.backward_s;
}

TEST(Sharding, EachPositionPaysForWhatItHolds) {
  const Pricing p(*find_hardware("a100-80gb"), *find_software("triax"), DType::BFloat16);
  StepShape s = zero3_shape();
  const GroupPlace place = shard_place(p, s);
  const ShapeParameters each = parameters_of(s);
  const double word = 51200.0 * 2048;
  const auto gather = [&](double n) { return p.collectives.time_s(comm::Operation::AllGather, place, 2 * n); };
  const auto reduce = [&](double n) { return p.collectives.time_s(comm::Operation::ReduceScatter, place, 4 * n); };
  const double two = 2 * (2 * gather(each.layer) + reduce(each.layer));
  EXPECT_NEAR(all_shards_s(p, s, 0), two + gather(each.embedding) + reduce(each.embedding), 1e-12);
  EXPECT_NEAR(all_shards_s(p, s, 1), two, 1e-12);
  EXPECT_NEAR(all_shards_s(p, s, 2), two + gather(word) + reduce(word), 1e-12);
  s.keep = parallel::KeepGathered::Step;
  EXPECT_NEAR(all_shards_s(p, s, 1), 2 * (gather(each.layer) / 4 + reduce(each.layer)), 1e-12);
  s.keep = parallel::KeepGathered::Backward;
  EXPECT_NEAR(all_shards_s(p, s, 1), 2 * (gather(each.layer) + reduce(each.layer)), 1e-12);
  // A tied head on the position of its embedding has no gradients of its own.
  s.keep = parallel::KeepGathered::Forward;
  s.pipeline = 1;
  const double untied = all_shards_s(p, s, 0);
  s.tied = true;
  EXPECT_NEAR(all_shards_s(p, s, 0), untied - reduce(word), 1e-12);
  // Overlap hides; what is left stands at the edges of the step.
  s.overlap_grad_reduce = s.overlap_param_gather = true;
  EXPECT_LT(all_shards_s(p, s, 0), untied / 2);
}

TEST(Sharding, UnderHpzStatesAreCutOverAllOfData) {
  const Pricing p(*find_hardware("a100-80gb"), *find_software("triax"), DType::BFloat16);
  StepShape all = zero3_shape();
  StepShape hpz = all;
  hpz.shard_group = 8;
  hpz.states = parallel::StateSharding::AllOfData;
  const double n = 1e9;
  EXPECT_DOUBLE_EQ(optimizer_time(p, hpz, n), optimizer_time(p, all, n));
  EXPECT_DOUBLE_EQ(reduce_time(p, hpz, n), 0);  // inside the passes, over all of dp
  const auto reduced = [&](const StepShape& s) {
    const LayerCosts costs = layer_costs(p, s);
    return costs.shard_layer.backward_s - costs.shard_layer.forward_s;
  };
  EXPECT_NEAR(reduced(hpz) / reduced(all), 1, 1e-9);
  // From owners to shards, between the two replicas of each.
  EXPECT_DOUBLE_EQ(gather_time(p, hpz, n),
                   p.collectives.time_s(comm::Operation::AllGather, place_of(2, 8, 8, 48), 2 * n / 8));
  hpz.states = parallel::StateSharding::ShardGroup;
  EXPECT_DOUBLE_EQ(gather_time(p, hpz, n), 0);
  EXPECT_GT(reduce_time(p, hpz, n), 0);
  EXPECT_NEAR(optimizer_time(p, hpz, n) / optimizer_time(p, all, n), 2, 1e-2);
}

TEST(StepShape, BytesOfAnUpdateAreThoseOfTheOptimizer) {
  const auto bytes = [](std::string words) {
    if (words.find("fp") == std::string::npos) words += " --bf16";
    const std::string model =
        "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 64 --max-position-embeddings 64 "
        "--vocab-size 128 --mock-data --lr 1e-4 --train-iters 1 --micro-batch-size 1 --global-batch-size 1 ";
    return shape_of(run_of(model + words, 1)).optimizer_bytes;
  };
  EXPECT_EQ(bytes("--optimizer adam"), 34);  // master, m, v: 24; gradients twice: 8; the 16-bit copy: 2
  EXPECT_EQ(bytes("--optimizer adam --fp64"), 64);
  EXPECT_EQ(bytes("--optimizer sgd"), 26);
  EXPECT_EQ(bytes("--optimizer sgd --sgd-momentum 0"), 18);
}

TEST(UnfusedAttention, SoftmaxIsOneKernelOnlyWhereTheRowsDivide) {
  Software software = *find_software("triax");
  software.attention = AttentionKernel::Unfused;
  StepShape s = zero3_shape();
  s.heads = s.kv_heads = 6;
  const auto core_s = [&](int64_t divisor) {
    software.fused_softmax_batches = divisor;
    const Pricing p(*find_hardware("a100-80gb"), software, DType::BFloat16);
    return layer_times(p, s).forward.attention_s;
  };
  const Pricing p(*find_hardware("a100-80gb"), software, DType::BFloat16);
  const double scores = 6.0 * 2048 * 2048;
  const double more = 33 * scores / p.device.score_bytes_per_s + 4 * p.device.kernel_floor_s;
  EXPECT_NEAR(core_s(4) - core_s(1), more, 1e-12);
  EXPECT_DOUBLE_EQ(core_s(2), core_s(1));
}

}  // namespace
}  // namespace triax::plan

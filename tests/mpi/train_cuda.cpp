// The trainer on the emulated GPUs against the trainer on the CPU, in the same layout: loss and gradient norm of ten
// steps in fp32. Streams lag at random; the losses must have the same bits every time.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <future>

#include "kernels/cuda_loader.h"
#include "parallel/program_print.h"
#include "tests/emulated/recorded.h"
#include "tests/mpi/parity.h"

namespace triax::test {
namespace {

constexpr int kSteps = 10;
constexpr double kFp32Tolerance = 1e-5;

struct Case {
  const char* name;
  Layout layout;
  int zero_stage = 0;
};

io::RunOptions options_of(const Case& c, const std::string& device) {
  io::RunOptions o = tiny_options(c.layout);
  o.control.precision = io::Precision::Fp32;
  o.control.device = device;
  o.parallel.zero_stage = c.zero_stage;
  o.batch.train_iters = kSteps;
  return o;
}

Trajectory trajectory_on(const Case& c, const std::string& device, int steps = kSteps) {
  TinyRun run(session(), options_of(c, device));
  Trajectory t = trajectory_of(run, 2);
  const int64_t calls = run.arena().provider_calls();
  const Trajectory rest = trajectory_of(run, steps - 2);
  t.loss.insert(t.loss.end(), rest.loss.begin(), rest.loss.end());
  t.norm.insert(t.norm.end(), rest.norm.begin(), rest.norm.end());
  if (device == "cpu") return t;
  EXPECT_EQ(run.arena().provider_calls(), calls) << "a steady step takes memory";
  expect_forecast_memory(run);
  return t;
}

void compare(const Case& c) {
  if (c.layout.world() != session().size()) return;
  SCOPED_TRACE(c.name);
  const Trajectory cpu = trajectory_on(c, "cpu");
  const Trajectory gpu = trajectory_on(c, "cuda-emulated");
  ASSERT_EQ(gpu.loss.size(), cpu.loss.size());
  for (size_t i = 0; i < cpu.loss.size(); ++i) {
    EXPECT_LT(relative(gpu.loss[i], cpu.loss[i]), kFp32Tolerance) << "loss of step " << i + 1;
    EXPECT_LT(relative(gpu.norm[i], cpu.norm[i]), kFp32Tolerance) << "gradient norm of step " << i + 1;
  }
}

Layout layout(TinyModel model, int tp, int pp, int dp) {
  Layout l;
  l.model = model;
  l.head = model == TinyModel::T0 ? Head::Tied : Head::Untied;
  l.tp = tp, l.pp = pp, l.dp = dp;
  return l;
}

TEST(TrainCuda, TensorParallelEqualsTheCpu) {
  compare({"t0 tp2", layout(TinyModel::T0, 2, 1, 1)});
  Layout sequence = layout(TinyModel::T1, 2, 1, 1);
  sequence.sp = parallel::SequenceParallel::Yes;
  compare({"t1 tp2 sequence parallel", sequence});
}

TEST(TrainCuda, PipelineEqualsTheCpu) {
  compare({"t0 pp2", layout(TinyModel::T0, 1, 2, 1)});
  Layout interleaved = layout(TinyModel::T1, 1, 2, 1);
  interleaved.vpp = 2;
  compare({"t1 pp2 interleaved", interleaved});
}

TEST(TrainCuda, DataParallelEqualsTheCpu) {
  compare({"t0 dp2", layout(TinyModel::T0, 1, 1, 2)});
  compare({"t1 dp2 zero 1", layout(TinyModel::T1, 1, 1, 2), 1});
  compare({"t0 dp2 zero 3", layout(TinyModel::T0, 1, 1, 2), 3});
  compare({"t1 dp2 zero 3", layout(TinyModel::T1, 1, 1, 2), 3});
}

/// Codes and selections are the CPU's for the same gradients; gradients differ by rounding, which may move an element
/// to the next code or out of the selection.
TEST(TrainCuda, CompressedSumsAndQuantizedGathersFollowTheCpu) {
  using comm::CompressionMethod;
  if (session().size() != 2) return;
  Case c{"dp2", layout(TinyModel::T1, 1, 1, 2)};
  const auto losses = [&](const std::string& device, CompressionMethod method, int stage) {
    c.zero_stage = stage;
    io::RunOptions o = options_of(c, device);
    comm::CompressionOptions& codes = o.parallel.compression;
    codes.method = method;
    codes.density = 0.05;
    codes.block_length = 32;
    codes.min_elements = 200;
    codes.rank = 2;
    codes.warmup_steps = method == CompressionMethod::OneBitAdam ? 2 : 0;
    o.parallel.zero_quantized_weights = stage == 3;
    TinyRun run(session(), o);
    std::vector<double> loss;
    for (int i = 0; i < 4; ++i) loss.push_back(run.step().totals.loss);
    if (device != "cpu") expect_forecast_memory(run);
    return loss;
  };
  const std::vector<double> plain = losses("cpu", CompressionMethod::None, 0);
  const std::vector<std::pair<CompressionMethod, int>> cases{{CompressionMethod::TopK, 1},
                                                             {CompressionMethod::Int8, 0},
                                                             {CompressionMethod::PowerSgd, 0},
                                                             {CompressionMethod::OneBitAdam, 1},
                                                             {CompressionMethod::None, 3}};
  for (const auto& [method, stage] : cases) {
    SCOPED_TRACE(std::string(name_of(method)) + " zero " + std::to_string(stage));
    const std::vector<double> cpu = losses("cpu", method, stage), gpu = losses("cuda-emulated", method, stage);
    for (size_t i = 0; i < cpu.size(); ++i) EXPECT_LT(relative(gpu[i], cpu[i]), 1e-4) << "loss of step " << i + 1;
    EXPECT_NE(cpu, plain);
  }
}

TEST(TrainCuda, ThreeAxesEqualTheCpu) {
  compare({"t0 tp2 pp2 dp2", layout(TinyModel::T0, 2, 2, 2)});
  compare({"t1 tp2 pp2 dp2 zero 1", layout(TinyModel::T1, 2, 2, 2), 1});
}

TEST(TrainCuda, DelaysOfStreamsChangeNoBit) {
  for (const Case& c :
       {Case{"pp2", layout(TinyModel::T0, 1, 2, 1)}, Case{"dp2 zero 3", layout(TinyModel::T1, 1, 1, 2), 3}}) {
    if (c.layout.world() != session().size()) continue;
    SCOPED_TRACE(c.name);
    const Trajectory first = trajectory_on(c, "cuda-emulated", 3);
    const Trajectory second = trajectory_on(c, "cuda-emulated", 3);
    EXPECT_EQ(first.loss, second.loss);
    EXPECT_EQ(first.norm, second.norm);
  }
}

template <class T>
T& of_module(const char* symbol) {
  return *reinterpret_cast<T* (*)()>(kernels::cuda_module_symbol(kernels::CudaModule::Emulated, symbol))();
}

// With --use-nccl-ub every group reads and writes memory that it was told of, and what is trained has the same bits.
TEST(TrainCuda, TensorsLieInMemoryRegisteredWithNccl) {
  if (session().size() != 2) return;
  auto& counts = of_module<emulated::NcclCounts>("triax_emulated_nccl");
  for (const Case& c :
       {Case{"dp2 zero 3", layout(TinyModel::T0, 1, 1, 2), 3}, Case{"pp2", layout(TinyModel::T0, 1, 2, 1)}}) {
    SCOPED_TRACE(c.name);
    std::vector<Trajectory> trained;
    for (const bool registers : {false, true}) {
      io::RunOptions options = options_of(c, "cuda-emulated");
      options.control.use_nccl_ub = registers;
      emulated::NcclCounts before;
      {
        TinyRun run(session(), options);
        before = counts;  // groups meet before there is memory of tensors
        trained.push_back(trajectory_of(run, 2));
        EXPECT_EQ(counts.registered > 0, registers);
      }
      EXPECT_EQ(counts.registered, 0);
      EXPECT_GT(counts.operations, before.operations);
      EXPECT_EQ(counts.operations_on_buffers - before.operations_on_buffers,
                registers ? counts.operations - before.operations : 0);
    }
    EXPECT_EQ(trained[0].loss, trained[1].loss);
    EXPECT_EQ(trained[0].norm, trained[1].norm);
  }
}

// A profiler that records a step sees every op of the program, by name and in order.
TEST(TrainCuda, AProfilerSeesTheOps) {
  if (session().size() != 2) return;
  TinyRun run(session(), options_of({"pp2", layout(TinyModel::T0, 1, 2, 1)}, "cuda-emulated"));
  auto& recorded = of_module<emulated::Recorded>("triax_emulated_recorded");
  recorded = {};
  run.step();
  EXPECT_TRUE(recorded.ranges.empty());
  EXPECT_TRUE(run.device().start_capture());
  run.step();
  run.device().stop_capture();
  run.step();
  std::vector<std::string> expected;
  const parallel::Program& program = run.trainer().program();
  const int position = run.trainer().position();
  for (const parallel::Op& op : program.positions[static_cast<size_t>(position)]) {
    expected.push_back(parallel::text_of(program.layers, position, op));
    expected.push_back("/");
  }
  EXPECT_EQ(recorded.ranges, expected);
  EXPECT_EQ(recorded.starts, 1);
  EXPECT_EQ(recorded.stops, 1);
  EXPECT_EQ(recorded.depth, 0);
}

// A copy beside the work has what the memory held at the call, although later work overwrites it.
TEST(TrainCuda, ACopyBesideTheWorkReadsWhatWasThere) {
  if (session().size() != 2) return;
  const train::RunDevice device(session(), "cuda-emulated", 1);
  Arena arena(device.get().memory()), pinned(device.get().staging_memory());
  constexpr int64_t kElements = 5000;
  const Buffer there = arena.allocate(DType::Float32, kElements, MemoryCategory::Workspace);
  const Buffer here = pinned.allocate(DType::Float32, kElements, MemoryCategory::Staging);
  const Tensor x = there.view(DType::Float32, {kElements}), copy = here.view(DType::Float32, {kElements});
  for (int i = 1; i <= 50; ++i) {
    device.get().fill(x, i);
    device.get().start_copy_beside(x, copy);
    device.get().order_after_copies();
    device.get().fill(x, -i);
    std::async(std::launch::async, [&] { device.get().finish_copies(); }).get();
    EXPECT_EQ(*std::min_element(copy.as<float>(), copy.as<float>() + kElements), i);
    EXPECT_EQ(*std::max_element(copy.as<float>(), copy.as<float>() + kElements), i);
  }
  device.get().synchronize();
}

TEST(TrainCuda, TheLedgerHasTheSecondsOfTheDevice) {
  if (session().size() != 2) return;
  TinyRun run(session(), options_of({"tp2", layout(TinyModel::T0, 2, 1, 1)}, "cuda-emulated"));
  run.step();
  // All of them, when the step is over, and each under the kind of layer that made the call.
  const auto step = run.grid().ledger().snapshot();
  run.device().synchronize();
  run.grid().collect_device_seconds();
  const auto later = run.grid().ledger().snapshot();
  const comm::Ledger::Key key{"tp", comm::Operation::AllReduce};
  EXPECT_EQ(step.at(key).busy_s, later.at(key).busy_s);
  EXPECT_EQ(step.at(key).exposed_s, later.at(key).exposed_s);
  const comm::LedgerEntry& sums = step.at(key);
  EXPECT_GT(sums.busy_s, 0);
  EXPECT_GT(sums.exposed_s, 0);
  EXPECT_EQ(sums.converted_calls, sums.calls);
  EXPECT_DOUBLE_EQ(sums.sent_bytes, static_cast<double>(sums.payload_bytes));  // 2 (n-1)/n of 2 ranks
  comm::LedgerEntry labelled;
  for (const auto& [kind, entry] : run.grid().ledger().labelled()) {
    if (kind.second != comm::Operation::AllReduce) continue;
    EXPECT_GT(entry.busy_s, 0) << kind.first;
    labelled.calls += entry.calls;
    labelled.busy_s += entry.busy_s;
  }
  EXPECT_EQ(labelled.calls, sums.calls);
  EXPECT_NEAR(labelled.busy_s, sums.busy_s, 1e-12);
}

}  // namespace
}  // namespace triax::test

// The trainer on the emulated GPUs against the trainer on the CPU, in the same layout: loss and gradient norm of ten
// steps in fp32. Streams lag at random; the losses must have the same bits every time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>

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

TEST(TrainCuda, ThreeAxesEqualTheCpu) {
  compare({"t0 tp2 pp2 dp2", layout(TinyModel::T0, 2, 2, 2)});
  compare({"t1 tp2 pp2 dp2 zero 1", layout(TinyModel::T1, 2, 2, 2), 1});
}

TEST(TrainCuda, DelaysOfStreamsChangeNoBit) {
  for (const Case& c :
       {Case{"pp2", layout(TinyModel::T0, 1, 2, 1)}, Case{"dp2 zero 3", layout(TinyModel::T1, 1, 1, 2), 3}}) {
    if (c.layout.world() != session().size()) continue;
    SCOPED_TRACE(c.name);
    const Trajectory first = trajectory_on(c, "cuda-emulated", 4);
    const Trajectory second = trajectory_on(c, "cuda-emulated", 4);
    EXPECT_EQ(first.loss, second.loss);
    EXPECT_EQ(first.norm, second.norm);
  }
}

TEST(TrainCuda, APeerThatDoesNotComeIsNamedAtTheDeadline) {
  if (session().size() != 2) return;
  comm::GridOptions options;
  options.shape.data = 2;
  options.timeout_s = 1;
  const train::RunDevice device(session(), "cuda-emulated", 1);
  comm::ProcessGrid grid(session(), options, device.groups());
  Arena arena(device.get().memory());
  const Buffer buffer = arena.allocate(DType::Float32, 100, MemoryCategory::Communication);
  const Tensor t = buffer.view(DType::Float32, {100});
  device.get().fill(t, 1);
  grid.data().all_reduce(t, comm::ReduceOp::Sum).wait();
  std::vector<float> host(100);
  device.get().download(t, Tensor(host.data(), DType::Float32, {100}));
  EXPECT_EQ(host[99], 2);
  if (session().rank() == 0) {
    grid.data().all_reduce(t, comm::ReduceOp::Sum).wait();
    try {
      device.get().synchronize();
      ADD_FAILURE() << "the other rank never called all_reduce";
    } catch (const comm::PeerLost& lost) {
      EXPECT_THAT(lost.what(), ::testing::HasSubstr("peer lost: all_reduce #2 of group dp waited 1."));
      EXPECT_THAT(lost.what(), ::testing::HasSubstr("a member of world ranks 0 1"));
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(TrainCuda, TheLedgerHasTheSecondsOfTheDevice) {
  if (session().size() != 2) return;
  TinyRun run(session(), options_of({"tp2", layout(TinyModel::T0, 2, 1, 1)}, "cuda-emulated"));
  for (int i = 0; i < 3; ++i) run.step();
  const auto entries = run.grid().ledger().snapshot();
  const comm::LedgerEntry& sums = entries.at({"tp", comm::Operation::AllReduce});
  EXPECT_GT(sums.busy_s, 0);
  EXPECT_GT(sums.exposed_s, 0);
  EXPECT_EQ(sums.converted_calls, sums.calls);
  EXPECT_DOUBLE_EQ(sums.sent_bytes, static_cast<double>(sums.payload_bytes));  // 2 (n-1)/n of 2 ranks
}

}  // namespace
}  // namespace triax::test

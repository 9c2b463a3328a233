// Residuals of compressed gradients in checkpoints: a run goes on with the same bits, and in another number of dp ranks
// nothing of what was not yet sent is lost.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "tests/mpi/mpi_world.h"
#include "tests/mpi/shared_directory.h"
#include "tests/mpi/train_harness.h"
#include "train/checkpointing.h"

namespace triax::test {
namespace {

using comm::CompressionMethod;

constexpr CompressionMethod kMethods[] = {CompressionMethod::TopK, CompressionMethod::OneBitAdam,
                                          CompressionMethod::PowerSgd, CompressionMethod::Int8,
                                          CompressionMethod::BFloat16};

struct SavedRun {
  explicit SavedRun(const io::RunOptions& options)
      : run(session(), options), checkpoints(run.options(), {}, run.trainer(), run.grid(), run.device(), run.arena()) {
    checkpoints.prepare();
    said = checkpoints.load_or_initialize();
  }
  TinyRun run;
  train::Checkpointing checkpoints;
  std::string said;
};

io::RunOptions options_of(const Layout& layout, CompressionMethod method, int zero, const std::string& save) {
  io::RunOptions o = tiny_options(layout);
  o.parallel.zero_stage = zero;
  comm::CompressionOptions& c = o.parallel.compression;
  c.method = method;
  c.density = 0.05;
  c.rank = 2;
  c.block_length = 32;
  c.min_elements = 200;
  c.warmup_steps = method == CompressionMethod::OneBitAdam ? 2 : 0;
  o.control.save = o.control.load = save;
  return o;
}

std::vector<Layout> layouts() {
  if (session().size() == 2) return {{.dp = 2}};
  return {{.tp = 2, .dp = 2}, {.pp = 2, .dp = 2}};
}

TEST(CompressionCheckpoint, a_run_goes_on_with_the_same_bits) {
  const SharedDirectory directory("residuals");
  for (const Layout& layout : layouts()) {
    for (const int zero : {0, 1}) {
      for (const CompressionMethod method : kMethods) {
        SCOPED_TRACE(fmt::format("{} {} zero {}", name_of(method), layout.text(), zero));
        const std::string save = directory.path(fmt::format("{} {} {}", name_of(method), layout.text(), zero));
        io::RunOptions options = options_of(layout, method, zero, save);
        SavedRun saved(options);
        for (int step = 0; step < 4; ++step) saved.run.step();
        saved.checkpoints.save({}, "test");
        const auto batches = saved.run.next_batches();
        const auto two_steps = [&](TinyRun& run) {
          run.trainer().train_step({batches, 0, {}});
          return run.trainer().train_step({batches, 0, {}}).totals.loss;
        };
        const double want = two_steps(saved.run);
        options.control.save = "";
        SavedRun loaded(options);
        EXPECT_EQ(two_steps(loaded.run), want);
        // And the residuals mattered: another method finds others, and is told what it lacks.
        if (method == CompressionMethod::TopK) {
          options.parallel.compression.method = CompressionMethod::PowerSgd;
          EXPECT_NE(SavedRun(options).said.find("tensors of the compression's state are not in it"), std::string::npos);
        }
      }
    }
  }
}

/// Sum over dp ranks of what is kept, tensor by tensor of rank 0's model part, weighted by element.
double kept(TinyRun& run) {
  double sum = 0;
  for (const comm::StateTensor& s : run.trainer().compression()->state()) {
    if (std::string(s.kind) == comm::kPowerSgdQ) continue;
    for (const parallel::Parameter& p : run.trainer().store().parameters()) {
      if (p.spec.replica != 0 || p.tied_copy || s.begin < p.offset || s.begin >= p.offset + p.numel) continue;
      for (int64_t i = 0; i < s.end - s.begin; ++i) {
        const int64_t global = p.global_index(s.begin - p.offset + i);
        sum += s.values.as<double>()[i] * (1 + 0.01 * static_cast<double>(global % 89));
      }
    }
  }
  run.grid().world().all_reduce(Tensor(&sum, DType::Float64, {1}), comm::ReduceOp::Sum).wait();
  return sum;
}

TEST(CompressionCheckpoint, what_was_not_sent_survives_another_number_of_ranks) {
  if (session().size() < 4) GTEST_SKIP() << "needs two numbers of dp ranks";
  const SharedDirectory directory("residuals");
  const Layout four{.dp = 4}, two{.tp = 2, .dp = 2};
  for (const CompressionMethod method : {CompressionMethod::TopK, CompressionMethod::Int8}) {
    for (const auto& [from, to] : {std::pair{four, two}, std::pair{two, four}}) {
      const std::string save = directory.path(fmt::format("{} {}", name_of(method), from.text()));
      SavedRun saved(options_of(from, method, 0, save));
      for (int step = 0; step < 3; ++step) saved.run.step();
      saved.checkpoints.save({}, "test");
      io::RunOptions options = options_of(to, method, 0, save);
      options.control.save = "";
      SavedRun loaded(options);
      const double want = kept(saved.run);
      EXPECT_NE(want, 0);
      EXPECT_NEAR(kept(loaded.run), want, 1e-12 * (1 + std::abs(want))) << name_of(method) << " to " << to.text();
    }
  }
}

}  // namespace
}  // namespace triax::test

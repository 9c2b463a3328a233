// Checkpoints of a run: written from any layout they hold the same bits, read into any layout they give them back;
// training goes on as if it had not stopped; failures are the same on all ranks and keep what was there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "io/checkpoint/index.h"
#include "io/checkpoint/verify.h"
#include "tests/mpi/mpi_world.h"
#include "tests/mpi/shared_directory.h"
#include "tests/mpi/train_harness.h"
#include "train/checkpointing.h"
#include "train/memory_forecast.h"
#include "train/text_generator.h"

namespace triax::test {
namespace {

using io::Precision;
using testing::HasSubstr;

std::vector<Layout> layouts() {
  const int n = session().size();
  std::vector<Layout> all{{.dp = n}, {.model = TinyModel::T1, .tp = 2, .pp = n / 2}, {.pp = 2, .vpp = 2, .dp = n / 2}};
  if (n >= 4) all.push_back({.model = TinyModel::T1, .head = Head::Untied, .tp = 4, .dp = n / 4});
  return all;
}

io::RunOptions options_of(const Layout& layout, Precision precision, const std::string& save = "") {
  io::RunOptions options = tiny_options(layout);
  options.control.precision = precision;
  options.model.hidden_dropout = options.model.attention_dropout = 0.1;
  options.control.save = options.control.load = save;
  return options;
}

io::WeightsHeader tokenizer() {
  io::WeightsHeader header;
  header.tokenizer_hash = "0123456789abcdef";
  header.tokenizer.type = "GPT2BPETokenizer";
  header.tokenizer.vocab_file = "/somewhere/vocab.json";
  return header;
}

/// A run with checkpoints, after prepare() and load_or_initialize().
struct SavedRun {
  SavedRun(const io::RunOptions& options, train::Use use = train::Use::Train)
      : run(session(), options, use),
        checkpoints(run.options(), tokenizer(), run.trainer(), run.grid(), run.device(), run.arena()) {
    checkpoints.prepare();
    checkpoints.load_or_initialize();
  }
  TinyRun run;
  train::Checkpointing checkpoints;
};

bool equal(Tensor a, Tensor b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

std::string content(const std::string& directory) {
  io::CheckpointReader reader(io::resolve_checkpoint(directory));
  return io::content_hash(reader);
}

TEST(Checkpoint, gives_every_layout_its_state_back) {
  const SharedDirectory directory("checkpoint");
  for (const Precision precision : {Precision::Fp64, Precision::Bf16}) {
    for (const Layout& layout : layouts()) {
      SCOPED_TRACE(layout.text());
      const std::string save = directory.path(fmt::format("{} {}", layout.text(), static_cast<int>(precision)));
      const io::RunOptions options = options_of(layout, precision, save);
      SavedRun saved(options);
      saved.run.step();
      saved.run.step();
      const std::string said = saved.checkpoints.save({16, 2, 0.5}, "test");
      EXPECT_THAT(said, HasSubstr("saved iteration 2"));
      EXPECT_EQ(saved.checkpoints.save({16, 2, 0.5}, "again"), "");
      io::RunOptions other = options;
      other.control.seed = 99;  // other initial weights, which the load must overwrite
      other.control.save = "";
      SavedRun loaded(other);
      const train::Optimizer& a = *saved.run.trainer().optimizer();
      const train::Optimizer& b = *loaded.run.trainer().optimizer();
      for (size_t i = 0; i < a.owned().size(); ++i) {
        EXPECT_TRUE(equal(a.master(i), b.master(i)));
        EXPECT_TRUE(equal(a.exp_avg(i), b.exp_avg(i)));
        EXPECT_TRUE(equal(a.exp_avg_sq(i), b.exp_avg_sq(i)));
      }
      saved.run.trainer().gather_weights();
      EXPECT_TRUE(equal(saved.run.trainer().store().held_weights(), loaded.run.trainer().store().held_weights()));
      EXPECT_EQ(loaded.run.trainer().progress().iteration, 2);
      EXPECT_EQ(loaded.run.trainer().progress().updates, 2);
      EXPECT_EQ(loaded.run.trainer().progress().schedule_samples, 16);
      EXPECT_EQ(loaded.run.trainer().progress().consumed_samples, 16);
      EXPECT_EQ(loaded.run.trainer().progress().loss_scale, saved.run.trainer().progress().loss_scale);
      EXPECT_EQ(loaded.checkpoints.loaded().consumed_valid_samples, 16);
      EXPECT_EQ(loaded.checkpoints.loaded().evaluated_at, 2);
      SavedRun evaluated(other, train::Use::Evaluate);
      EXPECT_TRUE(equal(saved.run.trainer().store().flat_weight(), evaluated.run.trainer().store().flat_weight()));
      EXPECT_TRUE(io::verify(io::resolve_checkpoint(save)).empty());
      saved.run.grid().world().barrier();
    }
  }
}

TEST(Checkpoint, holds_the_same_content_from_every_layout_and_number_of_writers) {
  const SharedDirectory directory("checkpoint");
  const int n = session().size();
  std::string expected;
  for (const auto& [name, layout, writers] : {std::tuple<std::string, Layout, int>{"dp", {.dp = n}, 0},
                                              {"tp", {.tp = 2, .dp = n / 2}, 1},
                                              {"pp", {.pp = 2, .dp = n / 2}, 2},
                                              {"vpp", {.pp = 2, .vpp = 2, .dp = n / 2}, 0}}) {
    SCOPED_TRACE(name);
    io::RunOptions options = options_of(layout, Precision::Bf16, directory.path(name));
    options.control.ckpt_writers_per_node = writers;
    SavedRun saved(options);
    saved.checkpoints.save({}, "test");
    const std::string hash = content(directory.path(name));
    if (expected.empty()) expected = hash;
    EXPECT_EQ(hash, expected);
    const std::string step = directory.path(name) + "/iter_0000000/";
    EXPECT_TRUE(std::filesystem::exists(step + io::kIndexFile));
    EXPECT_EQ(std::filesystem::exists(fmt::format("{}shard_{:05}.h5", step, (writers == 0 ? n : writers) - 1)), true);
    EXPECT_EQ(std::filesystem::exists(fmt::format("{}shard_{:05}.h5", step, writers == 0 ? n : writers)), false);
    saved.run.grid().world().barrier();
  }
}

TEST(Checkpoint, every_element_is_written_by_one_rank_and_ranks_write_alike) {
  const int n = session().size();
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.text());
    TinyRun run(session(), options_of(layout, Precision::Bf16));
    std::array<double, 2> sums{};  // all, largest
    for (const io::Piece& p : train::pieces_to_save(run.trainer(), run.grid(), train::WithOptimizer::Yes)) {
      sums[0] += static_cast<double>(p.bytes());
    }
    sums[1] = sums[0];
    run.grid().world().all_reduce(Tensor(&sums[0], DType::Float64, {1}), comm::ReduceOp::Sum).wait();
    run.grid().world().all_reduce(Tensor(&sums[1], DType::Float64, {1}), comm::ReduceOp::Max).wait();
    double parameters = 0;
    for (const train::TensorShape& t : train::model_tensors(run.options().model)) {
      parameters += static_cast<double>(elements_of(t.shape));
    }
    EXPECT_EQ(sums[0], parameters * (2 + 4 + 4 + 4));
    if (layout.dp == n) {
      EXPECT_LE(sums[1], 1.05 * sums[0] / n + 14 * 64);
    }
  }
}

/// Losses and norms of steps, as bits.
std::vector<double> steps(SavedRun& run, int count, const std::function<void(int)>& after = {}) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) {
    const train::StepResult result = run.run.step();
    values.insert(values.end(), {result.totals.loss, result.grad_norm, result.learning_rate, result.loss_scale});
    if (after) after(i);
  }
  return values;
}

TEST(Checkpoint, a_save_beside_the_training_keeps_the_state_of_its_step) {
  const SharedDirectory directory("checkpoint");
  io::RunOptions options = options_of({.dp = session().size()}, Precision::Bf16, directory.path("sync"));
  std::vector<double> straight;
  {
    SavedRun run(options);
    straight = steps(run, 6, [&](int i) {
      if (i == 2) run.checkpoints.save({}, "interval");
    });
  }
  options.control.save = options.control.load = directory.path("async");
  options.control.async_save = true;
  options.control.inject = "slow-save:0.3";
  {
    SavedRun run(options);
    const auto staging = static_cast<size_t>(MemoryCategory::Staging);
    EXPECT_GT(run.run.arena().ledger().live[staging], 0);
    const train::MemoryForecast forecast = train::forecast_memory(run.run.options(), session().rank());
    EXPECT_EQ(forecast.ledger.live[staging], run.run.arena().ledger().live[staging]);
    const std::vector<double> losses = steps(run, 6, [&](int i) {
      if (i == 2) {
        EXPECT_THAT(run.checkpoints.save({}, "interval"), HasSubstr("saving iteration 3 (interval): copied"));
      }
    });
    EXPECT_EQ(losses, straight);
    EXPECT_EQ(run.checkpoints.finish(), "saved iteration 3 in " + directory.path("async"));
  }
  EXPECT_EQ(content(directory.path("async")), content(directory.path("sync")));
}

TEST(Checkpoint, a_second_save_waits_or_is_skipped) {
  const SharedDirectory directory("checkpoint");
  for (const auto busy : {io::AsyncBusy::Wait, io::AsyncBusy::Skip}) {
    io::RunOptions options = options_of({.dp = session().size()}, Precision::Fp32,
                                        directory.path(busy == io::AsyncBusy::Wait ? "wait" : "skip"));
    options.control.async_save = true;
    options.control.async_save_busy = busy;
    options.control.inject = "slow-save:1";
    SavedRun run(options);
    run.checkpoints.save({}, "interval");
    steps(run, 1);
    const std::string said = run.checkpoints.save({}, "interval");
    run.checkpoints.finish();
    const std::vector<int64_t> there = io::complete_steps(options.control.save);
    if (busy == io::AsyncBusy::Wait) {
      EXPECT_EQ(there, (std::vector<int64_t>{0, 1})) << said;
    } else {
      EXPECT_EQ(there, (std::vector<int64_t>{0})) << said;
      EXPECT_THAT(said, HasSubstr("iteration 1 is not saved: iteration 0 is still being written"));
    }
    run.run.grid().world().barrier();
  }
}

/// Some ranks have seen the end of the save before, others not: the next one is still one of all ranks.
TEST(Checkpoint, a_save_whose_end_only_some_ranks_have_seen_keeps_them_together) {
  const SharedDirectory directory("checkpoint");
  io::RunOptions options = options_of({.dp = session().size()}, Precision::Fp32, directory.path("seen"));
  options.control.async_save = true;
  SavedRun run(options);
  for (int i = 0; i < 3; ++i) {
    run.checkpoints.save({}, "interval");
    while (io::tracked_step(options.control.save) != i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int poll = 0; poll < 50 && session().rank() % 2 == 1; ++poll) {
      run.checkpoints.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    steps(run, 1);
  }
  EXPECT_THAT(run.checkpoints.finish(), HasSubstr("saved iteration 2"));
  EXPECT_EQ(run.checkpoints.finish(), "");
  run.run.grid().world().barrier();
}

TEST(Checkpoint, a_failed_save_is_told_on_all_ranks_and_keeps_the_one_before) {
  const SharedDirectory directory("checkpoint");
  SavedRun run(options_of({.dp = session().size()}, Precision::Fp32, directory.path("x")));
  run.checkpoints.save({}, "test");
  steps(run, 1);
  // The name of the last rank's shard is taken by a directory as soon as the step's directory is there.
  train::SaveJob job;
  job.directory = directory.path("x");
  job.header = train::checkpoint_header(run.run.options(), tokenizer(), run.run.trainer().progress(), {});
  job.pieces = train::pieces_to_save(run.run.trainer(), run.run.grid(), train::WithOptimizer::Yes);
  job.writer = train::choose_writers(run.run.grid().nodes(), 0);
  const int last = session().size() - 1;
  if (session().rank() == last) {
    job.hook = [](io::SavePoint point) {
      if (point == io::SavePoint::HalfWritten) throw RunTimeError("the disk is on fire");
    };
  }
  std::string told;
  try {
    train::save_checkpoint(run.run.grid().control(), job);
  } catch (const RunTimeError& error) {
    told = error.what();
  }
  EXPECT_EQ(told, fmt::format("rank {}: the disk is on fire", last));
  run.run.grid().world().barrier();
  EXPECT_EQ(io::complete_steps(directory.path("x")), std::vector<int64_t>{0});
  EXPECT_FALSE(std::filesystem::exists(directory.path("x/iter_0000001.tmp")));
  run.run.grid().world().barrier();
}

TEST(Checkpoint, what_does_not_fit_is_named) {
  const SharedDirectory directory("checkpoint");
  io::RunOptions options = options_of({.dp = session().size()}, Precision::Fp32, directory.path("x"));
  options.control.save_optim = false;
  SavedRun run(options);
  run.checkpoints.save({}, "test");
  const auto message = [&](io::RunOptions other) -> std::string {
    other.control.save = "";
    try {
      SavedRun loaded(other);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "loaded";
  };
  EXPECT_THAT(message(options), HasSubstr("has no exp_avg: --finetune"));
  options.control.load_optim = false;
  EXPECT_EQ(message(options), "loaded");
  options.model.num_layers = 5;
  EXPECT_THAT(message(options), HasSubstr("tensor model.layers.4.self_attn.q_proj.weight is missing"));
  options.model.num_layers = 3;
  EXPECT_THAT(message(options),
              HasSubstr("weight of tensor model.layers.3.self_attn.q_proj.weight is not in the model"));
  options.control.ckpt_step = 7;
  EXPECT_THAT(message(options), HasSubstr("there is no checkpoint of iteration 7; there are 0"));
}

TEST(ReplicaShare, cuts_owned_ranges_evenly_and_wholly) {
  const std::vector<train::FlatRange> owned{{0, 100}, {200, 1000}, {5000, 5001}};
  for (const int count : {1, 2, 3, 7}) {
    std::vector<int64_t> elements;
    for (int index = 0; index < count; ++index) {
      for (const train::StateRange& range : train::replica_share(owned, index, count)) {
        EXPECT_EQ(range.flat.begin - range.begin, owned[range.piece].begin);
        for (int64_t i = range.flat.begin; i < range.flat.end; ++i) elements.push_back(i);
      }
    }
    std::vector<int64_t> all;
    for (const train::FlatRange& range : owned) {
      for (int64_t i = range.begin; i < range.end; ++i) all.push_back(i);
    }
    EXPECT_EQ(elements, all);
  }
}

TEST(Writers, runs_of_ranks_on_each_node) {
  EXPECT_EQ(train::choose_writers({0, 0, 0, 1, 1, 1}, 0), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(train::choose_writers({0, 0, 0, 1, 1, 1}, 1), (std::vector<int>{0, 0, 0, 3, 3, 3}));
  EXPECT_EQ(train::choose_writers({0, 1, 0, 1, 0, 1}, 2), (std::vector<int>{0, 1, 2, 3, 2, 3}));
}

std::vector<int32_t> generated(comm::ProcessGrid& grid, const io::RunOptions& options, const std::string& path,
                               const train::SamplingOptions& sampling) {
  const std::unique_ptr<kernels::Device> device = kernels::make_cpu_device({1});
  Arena arena(grid.memory());
  io::CheckpointReader reader(path);
  train::TextGenerator generator(grid, *device, arena, options, reader);
  std::vector<int32_t> tokens{3, 50, 7};
  generator.generate(tokens, 40, sampling, -1);  // beyond the context of 32: the window slides
  return tokens;
}

TEST(Generation, same_text_on_one_rank_and_on_many) {
  const SharedDirectory directory("checkpoint");
  const int n = session().size();
  for (const TinyModel model : {TinyModel::T0, TinyModel::T1}) {
    const std::string save = directory.path(model == TinyModel::T0 ? "t0" : "t1");
    SavedRun run(options_of({.model = model, .dp = n}, Precision::Fp64, save));
    run.checkpoints.save({}, "test");
    const std::string path = io::resolve_checkpoint(save);
    const io::WeightsHeader header = io::CheckpointReader(path).header().weights;
    EXPECT_EQ(header.model, run.run.options().model);
    EXPECT_EQ(header.tokenizer_hash, tokenizer().tokenizer_hash);
    EXPECT_EQ(header.tokenizer.vocab_file, tokenizer().tokenizer.vocab_file);
    io::RunOptions one = train::generation_options(header, 1, 1, 43);
    io::RunOptions many = train::generation_options(header, 2, n / 2, 43);
    io::resolve(one, 1, io::Purpose::Plan);
    io::resolve(many, n, io::Purpose::Plan);
    comm::ProcessGrid alone(comm::PhantomRank{}, train::grid_options(one));
    comm::ProcessGrid grid(session(), train::grid_options(many));
    const train::SamplingOptions sampling{.temperature = 0.8, .top_k = 20, .top_p = 0.9, .seed = 5};
    const std::vector<int32_t> expected = generated(alone, one, path, sampling);
    EXPECT_EQ(expected.size(), 43u);
    EXPECT_EQ(generated(grid, many, path, sampling), expected);
    EXPECT_NE(generated(alone, one, path, {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .seed = 6}), expected);
    grid.world().barrier();
  }
}

}  // namespace
}  // namespace triax::test

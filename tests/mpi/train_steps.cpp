// Rules of one training step, on 2 and 4 ranks: overflow, clipping, token weights, first loss, replica check with its
// sabotage, buckets and delays, errors, falling loss in every precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/mpi/mpi_world.h"
#include "tests/mpi/train_harness.h"
#include "train/replica_check.h"

namespace triax::test {
namespace {

using io::Precision;

/// Half of the ranks along `tp` or `pp`, the rest along dp.
Layout tensor_layout() { return {.tp = 2, .dp = session().size() / 2, .sp = parallel::SequenceParallel::Yes}; }
Layout pipeline_layout() { return {.pp = 2, .dp = session().size() / 2}; }
Layout data_layout() { return {.dp = session().size()}; }

std::vector<double> all_values(comm::Communicator& world, double mine) {
  std::vector<double> all(static_cast<size_t>(world.size()));
  world.all_gather(Tensor(&mine, DType::Float64, {1}), Tensor(all.data(), DType::Float64, {world.size()})).wait();
  return all;
}

template <class T>
std::vector<T> copy_of(Tensor t) {
  return std::vector<T>(t.as<T>(), t.as<T>() + t.numel());
}

TEST(Fp16, forced_overflow_skips_on_all_ranks_alike_and_the_scale_recovers) {
  io::RunOptions options = tiny_options(pipeline_layout());
  options.control.precision = Precision::Fp16;
  options.optimizer.initial_loss_scale = 0x1p40;  // overflows fp16 gradients of activations
  options.optimizer.hysteresis = 1;
  options.optimizer.loss_scale_window = 4;
  options.optimizer.lr_decay_style = io::LrDecayStyle::Linear;
  options.batch.train_iters = 60;
  TinyRun run(session(), options);
  int64_t updates = 0;
  int64_t skips = 0;
  double scale = 0x1p40;
  bool grew = false;
  for (int i = 0; i < 60 && !grew; ++i) {
    const std::vector<float> before = copy_of<float>(run.trainer().optimizer()->master(0));
    const train::StepResult result = run.step();
    for (const double other : all_values(run.grid().world(), result.skipped ? 1 : 0)) {
      ASSERT_EQ(other, result.skipped ? 1 : 0);
    }
    EXPECT_EQ(result.loss_scale, scale);
    EXPECT_EQ(result.learning_rate, 1e-3 * (1 - static_cast<double>(updates) / 60));  // no advance on a skipped step
    const double now = run.trainer().progress().loss_scale.scale;
    if (result.skipped) {
      ++skips;
      EXPECT_EQ(copy_of<float>(run.trainer().optimizer()->master(0)), before);
      EXPECT_EQ(now, scale / 2);
    } else {
      ++updates;
      grew = now > scale;
    }
    scale = now;
  }
  EXPECT_GE(skips, 5);
  EXPECT_TRUE(grew);
  EXPECT_EQ(run.trainer().progress().updates, updates);
  EXPECT_EQ(run.trainer().progress().iteration, updates + skips);
}

TEST(Clip, sgd_with_rate_1_moves_the_weights_by_the_clipped_norm) {
  for (const double clip : {0.5, 100.0}) {
    io::RunOptions options = tiny_options(tensor_layout());
    options.optimizer.kind = io::OptimizerKind::Sgd;
    options.optimizer.sgd_momentum = 0;
    options.optimizer.weight_decay = 0;
    options.optimizer.lr = 1;
    options.optimizer.clip_grad = clip;
    TinyRun run(session(), options);
    const std::vector<double> before = copy_of<double>(run.trainer().store().flat_weight());
    const train::StepResult result = run.step();
    ASSERT_GT(result.grad_norm, 0.5);
    const double* after = run.trainer().store().flat_weight().as<double>();
    double moved = 0;
    for (const train::FlatRange& range : train::counted_ranges(run.trainer().store())) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        moved += (after[i] - before[static_cast<size_t>(i)]) * (after[i] - before[static_cast<size_t>(i)]);
      }
    }
    run.grid().model_parallel().all_reduce(Tensor(&moved, DType::Float64, {1}), comm::ReduceOp::Sum).wait();
    const double expected =
        clip < result.grad_norm ? clip * result.grad_norm / (result.grad_norm + 1e-6) : result.grad_norm;
    EXPECT_NEAR(std::sqrt(moved), expected, 1e-12 * expected);
  }
}

TEST(Loss, zero_head_gives_the_logarithm_of_the_true_vocabulary) {
  Layout layout = tensor_layout();
  layout.head = Head::Untied;
  for (const TinyModel model : {TinyModel::T0, TinyModel::T1}) {
    layout.model = model;
    TinyRun run(session(), tiny_options(layout));
    for (parallel::Parameter& p : run.trainer().store().parameters()) {
      if (p.name.find("lm_head") != std::string::npos) std::fill_n(p.weight.as<double>(), p.numel, 0.0);
    }
    EXPECT_NEAR(run.step().totals.loss, std::log(101.0), 1e-12);
  }
}

TEST(Loss, masked_tokens_do_not_count_in_any_layout) {
  io::RunOptions serial = tiny_options({});
  serial.data.eod_mask_loss = true;
  for (const Layout& layout : {data_layout(), pipeline_layout(), tensor_layout()}) {
    SCOPED_TRACE(layout.text());
    io::RunOptions options = tiny_options(layout);
    options.data.eod_mask_loss = true;
    TinyRun alone(serial);
    TinyRun run(session(), options);
    for (int i = 0; i < 3; ++i) {
      const train::StepResult expected = alone.step();
      const train::StepResult actual = run.step();
      EXPECT_LT(expected.totals.tokens, 256);
      EXPECT_GT(expected.totals.tokens, 200);
      EXPECT_EQ(actual.totals.tokens, expected.totals.tokens);
      EXPECT_NEAR(actual.totals.loss, expected.totals.loss, 1e-12);
      EXPECT_NEAR(actual.grad_norm, expected.grad_norm, 1e-12);
    }
  }
}

TEST(Evaluation, is_the_training_loss_without_dropout_and_changes_nothing) {
  io::RunOptions options = tiny_options(pipeline_layout());
  options.model.hidden_dropout = options.model.attention_dropout = 0;
  TinyRun evaluated(session(), options);
  TinyRun trained(session(), options);
  evaluated.trainer().evaluate_step(evaluated.next_batches());
  const train::Trainer::Evaluation evaluation = evaluated.trainer().finish_evaluation();
  const train::StepResult step = trained.step();
  EXPECT_NEAR(evaluation.loss, step.totals.loss, 1e-14);
  EXPECT_EQ(evaluation.tokens, 256);
  EXPECT_EQ(evaluated.trainer().finish_evaluation().tokens, 0);
  EXPECT_EQ(evaluated.trainer().progress().iteration, 0);
}

void check(TinyRun& run) {
  train::check_replicas(run.trainer().store(), run.trainer().optimizer(), run.trainer().gradient_sync().plan(),
                        run.grid(), run.device());
}

TEST(ReplicaCheck, equal_replicas_pass_in_every_layout) {
  for (const Layout& layout : {data_layout(), pipeline_layout(), tensor_layout()}) {
    TinyRun run(session(), tiny_options(layout));
    for (int i = 0; i < 3; ++i) run.step();
    EXPECT_NO_THROW(check(run)) << layout.text();
  }
}

TEST(ReplicaCheck, catches_every_sum_that_is_left_out) {
  const std::vector<std::pair<std::string, Layout>> sabotage{
      {"skip-sync:tp", tensor_layout()}, {"skip-sync:tied", pipeline_layout()}, {"skip-sync:dp", data_layout()}};
  for (const auto& [inject, layout] : sabotage) {
    io::RunOptions options = tiny_options(layout);
    options.control.inject = inject;
    TinyRun run(session(), options);
    check(run);
    run.step();
    EXPECT_THROW(check(run), RunTimeError) << inject;
  }
}

// zb-v has both copies of the tied embedding on position 0; the last position has none to meet it with.
TEST(ReplicaCheck, both_copies_of_the_embedding_on_one_rank) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const std::string inject : {"", "skip-sync:tied"}) {
      io::RunOptions options = tiny_options({.pp = 2, .vpp = 2, .dp = session().size() / 2});
      options.parallel.schedule = parallel::ScheduleKind::ZeroBubbleV;
      options.parallel.zero_stage = stage;
      options.parallel.zero_persistence_threshold = 0;
      options.control.inject = inject;
      TinyRun run(session(), options);
      run.step();
      run.trainer().gather_weights();
      if (inject.empty()) {
        EXPECT_NO_THROW(check(run)) << stage;
      } else {
        EXPECT_THROW(check(run), RunTimeError) << stage;
      }
    }
  }
}

TEST(ReplicaCheck, catches_one_bit) {
  TinyRun run(session(), tiny_options(data_layout()));
  if (session().rank() == session().size() - 1) {
    auto* bits = static_cast<uint8_t*>(run.trainer().store().at(3).weight.data());
    bits[0] ^= 1;
  }
  try {
    check(run);
    ADD_FAILURE() << "a changed bit was not seen";
  } catch (const RunTimeError& error) {
    if (session().rank() == session().size() - 1) {
      EXPECT_THAT(error.what(), testing::HasSubstr(run.trainer().store().at(3).name));
    }
  }
}

TEST(Buckets, size_overlap_and_delays_do_not_change_a_bit) {
  const auto train = [](int64_t bucket, bool overlap, const std::string& inject) {
    io::RunOptions options = tiny_options({.pp = session().size() / 2, .dp = 2});
    options.control.precision = Precision::Fp32;
    options.parallel.ddp_bucket_size = bucket;
    options.parallel.overlap_grad_reduce = overlap;
    options.control.inject = inject;
    TinyRun run(session(), options);
    for (int i = 0; i < 3; ++i) run.step();
    return copy_of<float>(run.trainer().store().flat_weight());
  };
  const std::vector<float> reference = train(int64_t{1} << 40, false, "");
  EXPECT_EQ(train(1, true, ""), reference);
  EXPECT_EQ(train(50000, true, "dp:uniform:0:2ms:seed=1"), reference);
}

TEST(Failure, a_nan_names_step_rank_tensor_and_samples) {
  TinyRun run(session(), tiny_options(data_layout()));
  run.step();
  parallel::Parameter& p = run.trainer().store().at(5);
  p.weight.as<double>()[0] = std::numeric_limits<double>::quiet_NaN();
  try {
    run.step();
    ADD_FAILURE() << "a NaN was not seen";
  } catch (const RunTimeError& error) {
    for (const char* words : {"step 2", "rank 0 (tp 0, pp 0, dp 0)", "first tensor model.", "samples 8 to 15"}) {
      EXPECT_THAT(error.what(), testing::HasSubstr(words));
    }
  }
}

TEST(Failure, a_gradient_of_exactly_0_is_an_error) {
  io::RunOptions options = tiny_options(data_layout());
  TinyRun run(session(), options);
  // Without weights no signal reaches anything: logits are 0, and their gradient meets zero weights and activations.
  std::fill_n(run.trainer().store().flat_weight().as<double>(), run.trainer().store().numel(), 0.0);
  EXPECT_THROW(run.step(), RunTimeError);
}

TEST(Training, every_precision_learns) {
  for (const Precision precision : {Precision::Fp32, Precision::Bf16, Precision::Fp16}) {
    io::RunOptions options = tiny_options(pipeline_layout());
    options.model = tiny_model(TinyModel::T1);
    options.model.hidden_dropout = options.model.attention_dropout = 0;
    options.control.precision = precision;
    options.optimizer.lr = 3e-3;
    options.optimizer.initial_loss_scale = 1024;
    options.batch.train_iters = 60;
    TinyRun run(session(), options);
    const double first = run.step().totals.loss;
    double last = 0;
    for (int i = 1; i < 60; ++i) last = run.step().totals.loss;
    EXPECT_NEAR(first, std::log(101.0), 0.3);
    EXPECT_LT(last, 2.5) << static_cast<int>(precision);
  }
}

TEST(Schedule, weight_gradients_may_come_later) {
  TinyRun usual(session(), tiny_options(pipeline_layout()));
  io::RunOptions options = tiny_options(pipeline_layout());
  options.parallel.schedule = parallel::ScheduleKind::ZeroBubbleH1;
  TinyRun split(session(), options);
  for (int i = 0; i < 3; ++i) {
    const train::StepResult expected = usual.step();
    const train::StepResult actual = split.step();
    EXPECT_NEAR(actual.totals.loss, expected.totals.loss, 1e-13);
    EXPECT_NEAR(actual.grad_norm, expected.grad_norm, 1e-12);
  }
}

TEST(Steady, steps_ask_the_memory_provider_for_nothing) {
  TinyRun run(session(), tiny_options(pipeline_layout()));
  for (int i = 0; i < 3; ++i) run.step();
  const int64_t calls = run.arena().provider_calls();
  const int64_t peak = run.arena().ledger().peak_total;
  for (int i = 0; i < 3; ++i) run.step();
  EXPECT_EQ(run.arena().provider_calls(), calls);
  EXPECT_EQ(run.arena().ledger().peak_total, peak);
}

}  // namespace
}  // namespace triax::test

// Flat optimizers, the ranges they and the norm work on, factors, and what is computed from the ranks' reports.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "comm/self_comm.h"
#include "train/gradient_norm.h"
#include "train/gradient_sync.h"
#include "train/optimizer.h"
#include "train/step_report.h"

namespace triax::train {
namespace {

parallel::Parameter parameter(const char* name, std::vector<int64_t> shape, bool decay) {
  parallel::Parameter p;
  p.name = name;
  p.spec.global_shape = p.local_shape = shape;
  p.spec.count = shape[0];
  p.weight_decay = decay;
  return p;
}

/// weight [4, 10] at 0..39 (aligned to 64), bias [5] at 64 and norm [3] at 96 without decay, weight [2, 8] at 128.
class FlatStore : public testing::Test {
 protected:
  FlatStore() : device_(kernels::make_cpu_device({1})), arena_(heap_), self_("dp", heap_) {
    store_.begin_unit("layer", 0);
    store_.add({parameter("a.weight", {4, 10}, true)});
    store_.add({parameter("a.bias", {5}, false)});
    store_.add({parameter("norm.weight", {3}, false)});
    store_.add({parameter("b.weight", {2, 8}, true)});
  }
  void allocate(DType weight) {
    store_.allocate(weight, DType::Float32, arena_, *device_);
    for (parallel::Parameter& p : store_.parameters()) {
      for (int64_t i = 0; i < p.numel; ++i) p.grad.as<float>()[i] = 0.25f * static_cast<float>(i + 1);
    }
  }
  HeapProvider heap_;
  std::unique_ptr<kernels::Device> device_;
  Arena arena_;
  comm::SelfCommunicator self_;
  parallel::ParameterStore store_;
};

TEST_F(FlatStore, decay_ranges_join_neighbours_and_cut_at_shards) {
  EXPECT_EQ(decay_ranges(store_, 0.5, {0, 160}),
            (std::vector<DecayRange>{{{0, 64}, 0.5}, {{64, 128}, 0}, {{128, 160}, 0.5}}));
  EXPECT_EQ(decay_ranges(store_, 0.5, {20, 66}), (std::vector<DecayRange>{{{20, 64}, 0.5}, {{64, 66}, 0}}));
  EXPECT_EQ(decay_ranges(store_, 0, {0, 160}), (std::vector<DecayRange>{{{0, 160}, 0}}));
}

TEST_F(FlatStore, counted_ranges_leave_out_replicas_and_the_tied_copy) {
  EXPECT_EQ(counted_ranges(store_), (std::vector<FlatRange>{{0, 144}}));
  store_.at(2).spec.replica = 1;
  EXPECT_EQ(counted_ranges(store_), (std::vector<FlatRange>{{0, 69}, {128, 144}}));
  store_.at(0).tied_copy = true;
  EXPECT_EQ(counted_ranges(store_), (std::vector<FlatRange>{{64, 69}, {128, 144}}));
}

TEST_F(FlatStore, adamw_first_step_is_lr_times_sign_and_decays_only_where_told) {
  allocate(DType::Float32);
  io::OptimizerOptions o;
  o.weight_decay = 0.1;
  Optimizer optimizer(o, store_, *device_, arena_, DType::Float32, {{0, store_.numel()}});
  device_->fill(store_.flat_weight(), 2);
  kernels::StepBlock step;
  step.learning_rate = 0.01;
  step.grad_scale = 0.5;
  optimizer.step(&step);
  // m/(1-b1) = g, sqrt(v/(1-b2)) = |g|: w - lr (1 + wd w).
  EXPECT_NEAR(store_.at(0).weight.as<float>()[7], 2 - 0.01 * (1 + 0.1 * 2), 1e-6);
  EXPECT_NEAR(store_.at(1).weight.as<float>()[4], 2 - 0.01, 1e-6);
  EXPECT_EQ(optimizer.master(0).data(), store_.flat_weight().data());
}

TEST_F(FlatStore, skip_changes_nothing) {
  allocate(DType::Float32);
  Optimizer optimizer({}, store_, *device_, arena_, DType::Float32, {{0, store_.numel()}});
  kernels::StepBlock step;
  step.learning_rate = 0.01;
  step.skip = 1;
  store_.at(0).grad.as<float>()[0] = std::numeric_limits<float>::infinity();
  optimizer.step(&step);
  for (int64_t i = 0; i < store_.numel(); ++i) {
    ASSERT_EQ(store_.flat_weight().as<float>()[i], 0);
    ASSERT_EQ(optimizer.exp_avg(0).as<float>()[i], 0);
  }
}

TEST_F(FlatStore, bf16_weights_are_rounded_masters) {
  allocate(DType::BFloat16);
  io::OptimizerOptions o;
  o.kind = io::OptimizerKind::Sgd;
  o.sgd_momentum = 0;
  o.weight_decay = 0;
  Optimizer optimizer(o, store_, *device_, arena_, DType::Float32, {{0, store_.numel()}});
  EXPECT_FALSE(optimizer.momentum(0));
  device_->fill(optimizer.master(0), 1);
  optimizer.weights_from_master();
  kernels::StepBlock step;
  step.learning_rate = 0.001;
  for (int i = 0; i < 3; ++i) optimizer.step(&step);
  const int64_t at = store_.at(3).offset;
  EXPECT_NEAR(optimizer.master(0).as<float>()[at], 1 - 3 * 0.001 * 0.25, 1e-6);
  EXPECT_EQ(store_.flat_weight().as<bf16>()[at].bits, bf16(optimizer.master(0).as<float>()[at]).bits);
}

TEST_F(FlatStore, sgd_with_momentum) {
  allocate(DType::Float32);
  io::OptimizerOptions o;
  o.kind = io::OptimizerKind::Sgd;
  o.sgd_momentum = 0.9;
  o.weight_decay = 0;
  Optimizer optimizer(o, store_, *device_, arena_, DType::Float32, {{0, store_.numel()}});
  kernels::StepBlock step;
  step.learning_rate = 1;
  optimizer.step(&step);
  optimizer.step(&step);
  EXPECT_NEAR(store_.at(0).weight.as<float>()[3], -(1 + 1.9), 1e-6);  // g = 1: buf 1, then 1.9
}

TEST_F(FlatStore, norm_counts_each_element_once_and_names_the_first_bad_tensor) {
  allocate(DType::Float32);
  comm::SelfCommunicator group("model_parallel", heap_);
  GradientNorm norm(store_, counted_ranges(store_), group, *device_, arena_);
  double expected = 0;
  for (const parallel::Parameter& p : store_.parameters()) {
    for (int64_t i = 0; i < p.numel; ++i) expected += 0.0625 * static_cast<double>((i + 1) * (i + 1));
  }
  EXPECT_DOUBLE_EQ(norm.sum_of_squares(), expected);
  EXPECT_EQ(first_nonfinite(store_, *device_, arena_), "");
  store_.at(2).grad.as<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  store_.at(3).grad.as<float>()[1] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(norm.sum_of_squares()));
  EXPECT_EQ(first_nonfinite(store_, *device_, arena_), "norm.weight");
}

TEST(Factors, mean_and_clip) {
  EXPECT_DOUBLE_EQ(mean_factor(32, 1024, 256), 32.0 / (1024 * 256));
  EXPECT_DOUBLE_EQ(clip_factor(1, 4), 1 / (4 + 1e-6));
  EXPECT_DOUBLE_EQ(clip_factor(1, 0.5), 1);
  EXPECT_DOUBLE_EQ(clip_factor(0, 100), 1);
}

TEST(StepTotals, loss_is_weighted_by_tokens) {
  // 10 tokens at mean 2 and 2 tokens at mean 5: 2.5, not 3.5.
  const std::vector<RankReport> reports{{.loss_sum = 20, .tokens = 10}, {.loss_sum = 10, .tokens = 2}};
  EXPECT_DOUBLE_EQ(combine(reports, 1).loss, 2.5);
}

TEST(StepTotals, bubble_of_1f1b_without_latency) {
  // p 4, m 8, forward 1, backward 2: T = 33, each stage works 24 of it (schedules.md). A stage's idle time splits into
  // what it waits in receives and what is left after its end.
  std::vector<RankReport> reports;
  for (const double end : {33.0, 31.0, 29.0, 27.0})
    reports.push_back({.receive_wait_s = end - 24, .compute_end_s = end});
  EXPECT_NEAR(combine(reports, 4).bubble_fraction, 9.0 / 33, 1e-15);
  EXPECT_EQ(combine(reports, 1).bubble_fraction, 0);
}

TEST(SkippedSync, parses_its_part_of_inject) {
  const SkippedSync s = parse_skipped_sync("dp:fixed:2ms,skip-sync:tied");
  EXPECT_TRUE(s.tied);
  EXPECT_FALSE(s.tensor || s.data);
  EXPECT_THROW(parse_skipped_sync("skip-sync:pp"), ConfigError);
}

}  // namespace
}  // namespace triax::train

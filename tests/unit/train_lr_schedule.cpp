// Learning-rate schedules against their formulas, worked by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "train/lr_schedule.h"

namespace triax::train {
namespace {

using io::LrDecayStyle;
using io::WsdDecayStyle;

LrSchedule schedule(LrDecayStyle style) {
  LrSchedule s;
  s.style = style;
  s.max_lr = 1.0;
  s.min_lr = 0.1;
  s.warmup_samples = 100;
  s.decay_samples = 1100;
  return s;
}

TEST(LrSchedule, warmup_is_linear_from_init) {
  LrSchedule s = schedule(LrDecayStyle::Cosine);
  EXPECT_DOUBLE_EQ(learning_rate(s, 0), 0);
  EXPECT_DOUBLE_EQ(learning_rate(s, 25), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(s, 100), 1.0);
  s.init_lr = 0.2;
  EXPECT_DOUBLE_EQ(learning_rate(s, 0), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 50), 0.6);
}

TEST(LrSchedule, constant) {
  const LrSchedule s = schedule(LrDecayStyle::Constant);
  EXPECT_DOUBLE_EQ(learning_rate(s, 101), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1e9), 1.0);
}

TEST(LrSchedule, linear) {
  const LrSchedule s = schedule(LrDecayStyle::Linear);
  EXPECT_DOUBLE_EQ(learning_rate(s, 350), 0.1 + 0.9 * 0.75);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1100), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1101), 0.1);
}

TEST(LrSchedule, cosine) {
  const LrSchedule s = schedule(LrDecayStyle::Cosine);
  EXPECT_DOUBLE_EQ(learning_rate(s, 600), 0.55);
  EXPECT_NEAR(learning_rate(s, 350), 0.1 + 0.9 * 0.5 * (1 + std::numbers::sqrt2 / 2), 1e-15);
}

TEST(LrSchedule, inverse_square_root) {
  const LrSchedule s = schedule(LrDecayStyle::InverseSquareRoot);
  EXPECT_DOUBLE_EQ(learning_rate(s, 400), 0.5);  // sqrt(100 / 400)
  EXPECT_DOUBLE_EQ(learning_rate(s, 900), 1.0 / 3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1101), 0.1);
  LrSchedule cold = s;
  cold.warmup_samples = 0;
  EXPECT_DOUBLE_EQ(learning_rate(cold, 0), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(cold, 16), 0.25);
}

TEST(LrSchedule, warmup_stable_decay) {
  LrSchedule s = schedule(LrDecayStyle::Wsd);
  s.wsd_decay_samples = 400;
  const auto at = [&](WsdDecayStyle style, double n) {
    s.wsd_style = style;
    return learning_rate(s, n);
  };
  for (const auto style :
       {WsdDecayStyle::Linear, WsdDecayStyle::Cosine, WsdDecayStyle::Exponential, WsdDecayStyle::MinusSqrt}) {
    EXPECT_DOUBLE_EQ(at(style, 700), 1.0);
    EXPECT_NEAR(at(style, 1100), 0.1, 1e-15);
    EXPECT_DOUBLE_EQ(at(style, 1200), 0.1);
  }
  EXPECT_DOUBLE_EQ(at(WsdDecayStyle::Linear, 800), 0.1 + 0.9 * 0.75);
  EXPECT_NEAR(at(WsdDecayStyle::Cosine, 900), 0.55, 1e-15);
  EXPECT_NEAR(at(WsdDecayStyle::Exponential, 900), 0.1 + 0.9 * (std::numbers::sqrt2 - 1), 1e-15);
  EXPECT_DOUBLE_EQ(at(WsdDecayStyle::MinusSqrt, 800), 0.1 + 0.9 * 0.5);
}

io::OptimizerOptions optimizer_options() {
  io::OptimizerOptions o;
  o.lr = 0.4;
  o.lr_decay_iters = 50;
  o.lr_warmup_iters = 5;
  return o;
}

io::BatchOptions batch_options() {
  io::BatchOptions b;
  b.global_batch_size = 16;
  b.train_iters = 100;
  return b;
}

TEST(LrSchedule, lengths_are_samples) {
  const LrSchedule s = make_lr_schedule(optimizer_options(), batch_options());
  EXPECT_EQ(s.decay_samples, 800);
  EXPECT_EQ(s.warmup_samples, 80);
  io::OptimizerOptions o = optimizer_options();
  o.lr_warmup_iters = 0;
  o.lr_warmup_fraction = 0.01;
  EXPECT_DOUBLE_EQ(make_lr_schedule(o, batch_options()).warmup_samples, 8);
  o.lr_decay_iters = 0;
  EXPECT_DOUBLE_EQ(make_lr_schedule(o, batch_options()).decay_samples, 1600);
  io::BatchOptions by_samples;
  by_samples.global_batch_size = 16;
  by_samples.train_samples = 3000;
  o.lr_warmup_fraction = 0;
  o.lr_warmup_samples = 300;
  const LrSchedule t = make_lr_schedule(o, by_samples);
  EXPECT_EQ(t.decay_samples, 3000);
  EXPECT_EQ(t.warmup_samples, 300);
}

TEST(LrSchedule, scaling_with_the_batch) {
  EXPECT_DOUBLE_EQ(scaled_learning_rate(0.1, io::LrScaling::Linear, 8192, 256), 3.2);
  EXPECT_DOUBLE_EQ(scaled_learning_rate(0.1, io::LrScaling::Sqrt, 1024, 256), 0.2);
  EXPECT_DOUBLE_EQ(scaled_learning_rate(0.1, io::LrScaling::None, 1024, 0), 0.1);
  EXPECT_THROW(scaled_learning_rate(0.1, io::LrScaling::Linear, 1024, 0), ConfigError);
  io::OptimizerOptions o = optimizer_options();
  o.lr_scaling = io::LrScaling::Sqrt;
  o.lr_base_batch_size = 4;
  EXPECT_DOUBLE_EQ(make_lr_schedule(o, batch_options()).max_lr, 0.8);
}

TEST(LrSchedule, refuses_a_warmup_as_long_as_the_decay) {
  io::OptimizerOptions o = optimizer_options();
  o.lr_warmup_iters = 50;
  EXPECT_THROW(make_lr_schedule(o, batch_options()), ConfigError);
  o.lr_warmup_iters = 49;
  EXPECT_NO_THROW(make_lr_schedule(o, batch_options()));
  o.lr_decay_style = LrDecayStyle::Wsd;
  EXPECT_THROW(make_lr_schedule(o, batch_options()), ConfigError);  // no anneal length
}

}  // namespace
}  // namespace triax::train

// Loss scale of fp16: sequences of overflows and good steps.
#include <gtest/gtest.h>

#include "base/error.h"
#include "train/loss_scaler.h"

namespace triax::train {
namespace {

io::OptimizerOptions options() {
  io::OptimizerOptions o;
  o.initial_loss_scale = 1024;
  o.loss_scale_window = 3;
  o.hysteresis = 2;
  return o;
}

TEST(LossScaler, dynamic_waits_for_hysteresis_then_halves_each_time) {
  LossScaler s(options(), io::Precision::Fp16);
  EXPECT_TRUE(s.skips_overflow());
  s.update(true);
  EXPECT_EQ(s.scale(), 1024);
  s.update(true);
  EXPECT_EQ(s.scale(), 512);
  s.update(true);
  EXPECT_EQ(s.scale(), 256);
}

TEST(LossScaler, dynamic_doubles_after_a_window_of_good_steps) {
  LossScaler s(options(), io::Precision::Fp16);
  s.update(true);
  s.update(true);
  s.update(false);
  s.update(false);
  EXPECT_EQ(s.scale(), 512);
  s.update(false);
  EXPECT_EQ(s.scale(), 1024);
  // Growth restored the hysteresis, an overflow restarts the window.
  s.update(true);
  EXPECT_EQ(s.scale(), 1024);
  s.update(false);
  s.update(false);
  s.update(true);
  EXPECT_EQ(s.scale(), 512);
}

TEST(LossScaler, never_below_the_minimum) {
  io::OptimizerOptions o = options();
  o.min_loss_scale = 400;
  LossScaler s(o, io::Precision::Fp16);
  for (int i = 0; i < 5; ++i) s.update(true);
  EXPECT_EQ(s.scale(), 400);
}

TEST(LossScaler, static_scale_stays_and_still_skips) {
  io::OptimizerOptions o = options();
  o.loss_scale = 128;
  LossScaler s(o, io::Precision::Fp16);
  EXPECT_TRUE(s.skips_overflow());
  for (int i = 0; i < 10; ++i) s.update(i % 2 == 0);
  EXPECT_EQ(s.scale(), 128);
}

TEST(LossScaler, other_precisions_have_no_scale) {
  const LossScaler s(options(), io::Precision::Bf16);
  EXPECT_EQ(s.scale(), 1);
  EXPECT_FALSE(s.skips_overflow());
}

TEST(LossScaler, endless_skipping_is_an_error) {
  LossScaler s(options(), io::Precision::Fp16);
  for (int i = 0; i < 63; ++i) s.update(true);
  EXPECT_THROW(s.update(true), RunTimeError);
}

TEST(LossScaler, state_goes_on_where_it_was) {
  LossScaler a(options(), io::Precision::Fp16);
  a.update(true);
  a.update(false);
  LossScaler b(options(), io::Precision::Fp16);
  b.restore(a.state());
  a.update(true);
  b.update(true);
  EXPECT_EQ(a.state(), b.state());
  EXPECT_EQ(b.scale(), 512);
}

}  // namespace
}  // namespace triax::train

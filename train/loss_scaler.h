// Loss scale of fp16: the loss is multiplied by it before the backward pass so that small gradients do not vanish.
#pragma once

#include <cstdint>

#include "io/run_options.h"

namespace triax::train {

/// A pure value: what a checkpoint keeps, the same on all ranks.
struct LossScaleState {
  double scale = 1;
  int64_t good_steps = 0;       ///< since the last change or overflow
  int64_t hysteresis_left = 1;  ///< overflows until the scale is halved
  int64_t consecutive_skips = 0;
  bool operator==(const LossScaleState&) const = default;
};

/// Static (--loss-scale) or dynamic (Micikevicius 2018, arXiv 1710.03740, section 3.2; Megatron's rules): an overflow
/// uses up one of `hysteresis`; with none left each overflow halves the scale, not below min_loss_scale;
/// loss_scale_window good steps in a row double it and restore the hysteresis. Other precisions keep scale 1 and never
/// skip.
class LossScaler {
 public:
  LossScaler(const io::OptimizerOptions& options, io::Precision precision);
  /// Whether an overflow skips the update instead of being an error.
  bool skips_overflow() const { return skips_; }
  double scale() const { return state_.scale; }
  const LossScaleState& state() const { return state_; }
  void restore(const LossScaleState& state) { state_ = state; }
  /// After every step. Throws RunTimeError after 64 skips in a row.
  void update(bool overflow);

 private:
  void halve_or_wait();
  bool skips_ = false;
  bool dynamic_ = false;
  double min_scale_ = 1;
  int64_t window_ = 1000;
  int64_t hysteresis_ = 2;
  LossScaleState state_;
};

}  // namespace triax::train

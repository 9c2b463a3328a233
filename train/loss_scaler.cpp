#include "train/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace triax::train {
namespace {
constexpr int64_t kMaxConsecutiveSkips = 64;
}

LossScaler::LossScaler(const io::OptimizerOptions& options, io::Precision precision)
    : skips_(precision == io::Precision::Fp16),
      dynamic_(skips_ && options.loss_scale == 0),
      min_scale_(options.min_loss_scale),
      window_(options.loss_scale_window),
      hysteresis_(options.hysteresis) {
  if (dynamic_) {
    state_.scale = options.initial_loss_scale;
  } else if (options.loss_scale > 0) {
    state_.scale = options.loss_scale;
  }
  state_.hysteresis_left = hysteresis_;
}

void LossScaler::update(bool overflow) {
  if (!overflow) {
    state_.consecutive_skips = 0;
    if (dynamic_ && ++state_.good_steps == window_) {
      state_.good_steps = 0;
      state_.hysteresis_left = hysteresis_;
      state_.scale *= 2;
    }
    return;
  }
  if (++state_.consecutive_skips >= kMaxConsecutiveSkips) {
    throw RunTimeError(fmt::format("{} steps in a row overflowed, the loss scale is {}: lower --lr, or use --bf16",
                                   state_.consecutive_skips, state_.scale));
  }
  if (dynamic_) halve_or_wait();
}

void LossScaler::halve_or_wait() {
  state_.good_steps = 0;
  --state_.hysteresis_left;
  if (state_.hysteresis_left <= 0) state_.scale = std::max(state_.scale / 2, min_scale_);
}

}  // namespace triax::train

#include "train/lr_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace triax::train {
namespace {

double cosine(double ratio) { return 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0); }

double wsd_coefficient(io::WsdDecayStyle style, double q) {
  switch (style) {
    case io::WsdDecayStyle::Linear:
      return 1.0 - q;
    case io::WsdDecayStyle::Cosine:
      return cosine(q);
    case io::WsdDecayStyle::Exponential:
      return 2.0 * std::pow(0.5, q) - 1.0;
    case io::WsdDecayStyle::MinusSqrt:
      return 1.0 - std::sqrt(q);
  }
  return 1.0;
}

double decay_coefficient(const LrSchedule& s, double n) {
  const double r = (n - s.warmup_samples) / (s.decay_samples - s.warmup_samples);
  switch (s.style) {
    case io::LrDecayStyle::Linear:
      return 1.0 - r;
    case io::LrDecayStyle::Cosine:
      return cosine(r);
    case io::LrDecayStyle::Wsd: {
      const double anneal_start = s.decay_samples - s.wsd_decay_samples;
      return n <= anneal_start ? 1.0 : wsd_coefficient(s.wsd_style, (n - anneal_start) / s.wsd_decay_samples);
    }
    default:
      return 1.0;
  }
}

void check_lengths(const LrSchedule& s) {
  if (s.style == io::LrDecayStyle::Constant) return;
  if (s.warmup_samples >= s.decay_samples) {
    throw ConfigError(
        fmt::format("learning rate warm-up of {} samples must be shorter than the decay of {} samples: lower "
                    "--lr-warmup-iters, --lr-warmup-samples or --lr-warmup-fraction, or raise --lr-decay-iters",
                    s.warmup_samples, s.decay_samples));
  }
  if (s.style == io::LrDecayStyle::Wsd && (s.wsd_decay_samples <= 0 || s.wsd_decay_samples > s.decay_samples)) {
    throw ConfigError(
        fmt::format("--lr-decay-style WSD needs --lr-wsd-decay-iters (or -samples) between 1 and the decay length; "
                    "got {} of {} samples",
                    s.wsd_decay_samples, s.decay_samples));
  }
}

}  // namespace

double scaled_learning_rate(double lr, io::LrScaling scaling, int64_t global_batch, int64_t base_batch) {
  if (scaling == io::LrScaling::None) return lr;
  if (base_batch <= 0) {
    throw ConfigError("--lr-scaling needs --lr-base-batch-size, the global batch for which --lr was tuned, at least 1");
  }
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(base_batch);
  return lr * (scaling == io::LrScaling::Linear ? ratio : std::sqrt(ratio));
}

LrSchedule make_lr_schedule(const io::OptimizerOptions& optimizer, const io::BatchOptions& batch) {
  LrSchedule s;
  s.style = optimizer.lr_decay_style;
  s.wsd_style = optimizer.lr_wsd_decay_style;
  s.init_lr = optimizer.lr_warmup_init;
  s.max_lr =
      scaled_learning_rate(optimizer.lr, optimizer.lr_scaling, batch.global_batch_size, optimizer.lr_base_batch_size);
  s.min_lr = scaled_learning_rate(optimizer.min_lr, optimizer.lr_scaling, batch.global_batch_size,
                                  optimizer.lr_base_batch_size);
  const auto global = static_cast<double>(batch.global_batch_size);
  const auto samples = [](int64_t n) { return static_cast<double>(n); };
  const bool by_samples = batch.train_samples > 0;
  if (by_samples) {
    s.decay_samples = samples(optimizer.lr_decay_samples > 0 ? optimizer.lr_decay_samples : batch.train_samples);
    s.warmup_samples = samples(optimizer.lr_warmup_samples);
    s.wsd_decay_samples = samples(optimizer.lr_wsd_decay_samples);
  } else {
    s.decay_samples = global * samples(optimizer.lr_decay_iters > 0 ? optimizer.lr_decay_iters : batch.train_iters);
    s.warmup_samples = global * samples(optimizer.lr_warmup_iters);
    s.wsd_decay_samples = global * samples(optimizer.lr_wsd_decay_iters);
  }
  if (optimizer.lr_warmup_fraction > 0) s.warmup_samples = optimizer.lr_warmup_fraction * s.decay_samples;
  check_lengths(s);
  return s;
}

double learning_rate(const LrSchedule& s, double n) {
  if (s.warmup_samples > 0 && n <= s.warmup_samples) return s.init_lr + (s.max_lr - s.init_lr) * n / s.warmup_samples;
  if (s.style == io::LrDecayStyle::Constant) return s.max_lr;
  if (n > s.decay_samples) return s.min_lr;
  if (s.style == io::LrDecayStyle::InverseSquareRoot) {
    return std::max(s.min_lr, s.max_lr * std::sqrt(std::max(s.warmup_samples, 1.0)) / std::sqrt(std::max(n, 1.0)));
  }
  return s.min_lr + decay_coefficient(s, n) * (s.max_lr - s.min_lr);
}

}  // namespace triax::train

// Learning rate as a pure function of the samples of all updates so far (Megatron-LM's scheduler counts samples).
#pragma once

#include <cstdint>

#include "io/run_options.h"

namespace triax::train {

/// A schedule with every length in samples: W warm-up, D decay (from 0), A WSD anneal (the last A of D).
struct LrSchedule {
  io::LrDecayStyle style = io::LrDecayStyle::Linear;
  io::WsdDecayStyle wsd_style = io::WsdDecayStyle::Exponential;
  double init_lr = 0;  ///< where the warm-up starts
  double max_lr = 0;
  double min_lr = 0;
  double warmup_samples = 0;     ///< W; a fraction of D need not be whole
  double decay_samples = 0;      ///< D
  double wsd_decay_samples = 0;  ///< A
};

/// lr * (global / base) for linear, lr * sqrt(global / base) for square-root scaling, lr for none (Goyal 2017,
/// arXiv 1706.02677, section 2.1; Krizhevsky 2014, arXiv 1404.5997, section 5).
double scaled_learning_rate(double lr, io::LrScaling scaling, int64_t global_batch, int64_t base_batch);

/// Lengths in iterations become samples by the global batch; with train_samples the *_samples options hold. D defaults
/// to the length of the run, and W is lr_warmup_fraction * D when a fraction is given. lr is scaled, min_lr is not.
/// Throws ConfigError when W does not lie below D, or A not within (0, D] under WSD.
LrSchedule make_lr_schedule(const io::OptimizerOptions& optimizer, const io::BatchOptions& batch);

/// The rate of the update that follows n samples of updates (n = 0 for the first; skipped steps do not count):
///   n <= W > 0           init + (max - init) n / W
///   constant             max
///   n > D                min
///   inverse-square-root  max(min, max sqrt(max(W, 1)) / sqrt(max(n, 1)))
///   otherwise            min + c (max - min), with r = (n - W) / (D - W):
///     linear c = 1 - r; cosine c = (cos(pi r) + 1) / 2
///     WSD    c = 1 up to n = D - A, then with q = (n - D + A) / A:
///            linear 1 - q; cosine (cos(pi q) + 1) / 2; exponential 2 * 0.5^q - 1; minus_sqrt 1 - sqrt(q)
double learning_rate(const LrSchedule& schedule, double n);

}  // namespace triax::train

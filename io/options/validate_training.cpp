#include <algorithm>

#include "io/options/fault_list.h"

namespace triax::io {
namespace {

int64_t global_batch(const RunOptions& options, int64_t dp) {
  const BatchOptions& batch = options.batch;
  return batch.global_batch_size > 0 ? batch.global_batch_size : batch.micro_batch_size * std::max<int64_t>(dp, 1);
}

void check_length(const RunOptions& options, int64_t dp, FaultList& faults) {
  const BatchOptions& batch = options.batch;
  if (options.control.skip_train) return;
  if (batch.train_iters == 0 && batch.train_samples == 0) {
    faults.missing("train-iters", "the length of the run; or --train-samples, or --skip-train");
  }
  const int64_t global = global_batch(options, dp);
  if (batch.train_samples == 0 || global == 0) return;
  if (batch.train_iters > 0 && batch.train_iters != batch.train_samples / global) {
    faults.add("train-iters", batch.train_iters, fmt::format("excludes --train-samples {}", batch.train_samples),
               "one of the two");
  }
  if (batch.train_samples < global) {
    faults.add("train-samples", batch.train_samples, fmt::format("is less than one global batch of {}", global),
               fmt::format("{} or more", global));
  }
}

// Iterations or samples, never both (flags.md 4.1).
void check_units(const RunOptions& options, FaultList& faults) {
  const OptimizerOptions& o = options.optimizer;
  const bool samples = options.batch.train_samples > 0;
  const auto wrong_unit = [&](const char* name, int64_t value, const char* unit, const char* other) {
    if (value == 0) return;
    faults.add(fmt::format("lr-{}-{}", name, unit), value,
               fmt::format("iterations and samples do not mix: the run is given by --train-{}", other),
               fmt::format("--lr-{}-{}", name, other));
  };
  if (samples) {
    wrong_unit("decay", o.lr_decay_iters, "iters", "samples");
    wrong_unit("warmup", o.lr_warmup_iters, "iters", "samples");
    wrong_unit("wsd-decay", o.lr_wsd_decay_iters, "iters", "samples");
  } else if (options.batch.train_iters > 0) {
    wrong_unit("decay", o.lr_decay_samples, "samples", "iters");
    wrong_unit("warmup", o.lr_warmup_samples, "samples", "iters");
    wrong_unit("wsd-decay", o.lr_wsd_decay_samples, "samples", "iters");
  }
}

void check_warmup(const RunOptions& options, FaultList& faults) {
  const OptimizerOptions& o = options.optimizer;
  const bool samples = options.batch.train_samples > 0;
  const char* const unit = samples ? "samples" : "iters";
  const int64_t warmup = samples ? o.lr_warmup_samples : o.lr_warmup_iters;
  const int64_t given = samples ? o.lr_decay_samples : o.lr_decay_iters;
  const int64_t decay = given > 0 ? given : (samples ? options.batch.train_samples : options.batch.train_iters);
  if (warmup > 0 && o.lr_warmup_fraction > 0) {
    faults.add("lr-warmup-fraction", o.lr_warmup_fraction, fmt::format("excludes --lr-warmup-{} {}", unit, warmup),
               "one of the two");
  } else if (decay > 0 && warmup >= decay && warmup > 0) {
    faults.add(fmt::format("lr-warmup-{}", unit), warmup, fmt::format("must be shorter than the decay of {}", decay),
               fmt::format("at most {}", decay - 1));
  }
  if (o.lr_decay_style != LrDecayStyle::Wsd) return;
  const int64_t last = samples ? o.lr_wsd_decay_samples : o.lr_wsd_decay_iters;
  if (last == 0) {
    faults.missing(fmt::format("lr-wsd-decay-{}", unit), "the length of WSD's last phase");
  } else if (decay > 0 && last > decay) {
    faults.add(fmt::format("lr-wsd-decay-{}", unit), last, fmt::format("is longer than the decay of {}", decay),
               fmt::format("at most {}", decay));
  }
}

void check_loss_scale(const RunOptions& options, FaultList& faults) {
  const OptimizerOptions& o = options.optimizer;
  const bool fp16 = options.control.precision == Precision::Fp16;
  if (o.loss_scale > 0 && !fp16) {
    faults.add("loss-scale", o.loss_scale, "only fp16 gradients are scaled", "--fp16, or leave it out");
  }
  if (fp16 && o.loss_scale == 0 && o.initial_loss_scale < o.min_loss_scale) {
    faults.add("initial-loss-scale", o.initial_loss_scale,
               fmt::format("is below --min-loss-scale {}", o.min_loss_scale),
               fmt::format("{} or more", o.min_loss_scale));
  }
}

}  // namespace

void check_batch(const RunOptions& options, int64_t dp, FaultList& faults) {
  const BatchOptions& batch = options.batch;
  if (batch.micro_batch_size <= 0) {
    faults.missing("micro-batch-size", "samples of one forward pass, a whole number of at least 1");
    return;
  }
  const int64_t per_pass = batch.micro_batch_size * dp;
  if (dp > 0 && batch.global_batch_size % per_pass != 0) {
    faults.add("global-batch-size", batch.global_batch_size,
               fmt::format("must be a multiple of micro-batch {} x data-parallel {} = {}", batch.micro_batch_size, dp,
                           per_pass),
               nearest_multiples(per_pass, batch.global_batch_size));
  }
}

void check_optimizer(const RunOptions& options, int64_t dp, FaultList& faults) {
  const OptimizerOptions& o = options.optimizer;
  check_length(options, dp, faults);
  if (options.control.skip_train) return;
  if (o.lr <= 0) faults.missing("lr", "the learning rate, greater than 0");
  if (o.lr > 0 && o.min_lr > o.lr) {
    faults.add("min-lr", o.min_lr, fmt::format("is above --lr {}", o.lr), fmt::format("at most {}", o.lr));
  }
  if (o.lr > 0 && o.lr_warmup_init > o.lr) {
    faults.add("lr-warmup-init", o.lr_warmup_init, fmt::format("is above --lr {}", o.lr),
               fmt::format("at most {}", o.lr));
  }
  if (o.lr_scaling != LrScaling::None && o.lr_base_batch_size <= 0) {
    faults.missing("lr-base-batch-size", "--lr-scaling needs the global batch for which --lr was chosen");
  }
  if (o.lr_scaling == LrScaling::None && o.lr_base_batch_size > 0) {
    faults.add("lr-base-batch-size", o.lr_base_batch_size, "has no effect alone",
               "--lr-scaling linear or sqrt with it");
  }
  check_units(options, faults);
  check_warmup(options, faults);
  check_loss_scale(options, faults);
}

}  // namespace triax::io

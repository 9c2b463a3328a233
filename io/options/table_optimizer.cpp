// Batch and length of the run, optimizer, learning-rate schedule, precision and loss scaling.
#include "io/options/entries.h"

namespace triax::io {
namespace {

// Refuses some known words of other systems with their own reason.
OptionEntry optimizer() {
  OptionEntry entry = choice_option<OptimizerKind>(
      "optimizer", OptionGroup::Optimizer, {{"adam", OptimizerKind::Adam}, {"sgd", OptimizerKind::Sgd}},
      [](auto& o) -> auto& { return o.optimizer.kind; }, "adam is AdamW: decoupled weight decay");
  const OptionSetter set = entry.set;
  entry.set = [set](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    if (values[0].ends_with("muon") || values[0] == "lion" || values[0] == "soap") {
      return "this optimizer is not in this version; use adam or sgd";
    }
    return set(o, values);
  };
  return other_names(entry, "optimizer.type", "optimizer.name");
}

OptionEntry precision_switch(const char* name, Precision precision, const char* help) {
  OptionEntry entry = derived_option(name, ValueKind::Switch, OptionGroup::Precision, "", help);
  entry.set = [precision](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    if (values[0] == "true") o.control.precision = precision;
    if (values[0] == "false" && o.control.precision == precision) o.control.precision = Precision::Fp32;
    return {};
  };
  entry.get = [precision](const RunOptions& o) -> std::vector<std::string> {
    return {o.control.precision == precision ? "true" : "false"};
  };
  return entry;
}

OptionEntry train_iters() {
  OptionEntry entry = integer_option(
      "train-iters", OptionGroup::Batch, {1, kMostCount}, [](auto& o) -> auto& { return o.batch.train_iters; },
      "iterations of the run; or --train-samples");
  // Derived from the samples, it is not written beside them: the two exclude each other.
  entry.get = [get = entry.get](const RunOptions& o) -> std::vector<std::string> {
    if (o.batch.train_samples > 0) return {};
    return get(o);
  };
  return other_names(entry, "", "training.steps");
}

std::vector<OptionEntry> schedule_entries() {
  constexpr OptionGroup kGroup = OptionGroup::Optimizer;
  return {
      other_names(real_option(
                      "lr", kGroup, kNotNegative, [](auto& o) -> auto& { return o.optimizer.lr; },
                      "learning rate after warm-up"),
                  "optimizer.params.lr", "optimizer.lr"),
      real_option(
          "min-lr", kGroup, kNotNegative, [](auto& o) -> auto& { return o.optimizer.min_lr; },
          "learning rate at the end of the decay"),
      choice_option<LrDecayStyle>(
          "lr-decay-style", kGroup,
          {{"constant", LrDecayStyle::Constant},
           {"linear", LrDecayStyle::Linear},
           {"cosine", LrDecayStyle::Cosine},
           {"inverse-square-root", LrDecayStyle::InverseSquareRoot},
           {"WSD", LrDecayStyle::Wsd}},
          [](auto& o) -> auto& { return o.optimizer.lr_decay_style; }, "decay of the learning rate"),
      choice_option<WsdDecayStyle>(
          "lr-wsd-decay-style", kGroup,
          {{"exponential", WsdDecayStyle::Exponential},
           {"linear", WsdDecayStyle::Linear},
           {"cosine", WsdDecayStyle::Cosine},
           {"minus_sqrt", WsdDecayStyle::MinusSqrt}},
          [](auto& o) -> auto& { return o.optimizer.lr_wsd_decay_style; }, "WSD: its last phase"),
      integer_option(
          "lr-decay-iters", kGroup, {1, kMostCount}, [](auto& o) -> auto& { return o.optimizer.lr_decay_iters; },
          "length of the decay; default --train-iters"),
      integer_option(
          "lr-decay-samples", kGroup, {1}, [](auto& o) -> auto& { return o.optimizer.lr_decay_samples; },
          "length of the decay in samples"),
      integer_option(
          "lr-wsd-decay-iters", kGroup, {1, kMostCount},
          [](auto& o) -> auto& { return o.optimizer.lr_wsd_decay_iters; }, "WSD: length of its last phase"),
      integer_option(
          "lr-wsd-decay-samples", kGroup, {1}, [](auto& o) -> auto& { return o.optimizer.lr_wsd_decay_samples; },
          "the same in samples"),
      integer_option(
          "lr-warmup-iters", kGroup, {0, kMostCount}, [](auto& o) -> auto& { return o.optimizer.lr_warmup_iters; },
          "linear warm-up"),
      integer_option(
          "lr-warmup-samples", kGroup, {0}, [](auto& o) -> auto& { return o.optimizer.lr_warmup_samples; },
          "linear warm-up in samples"),
      real_option(
          "lr-warmup-fraction", kGroup, {0, 1, true, true},
          [](auto& o) -> auto& { return o.optimizer.lr_warmup_fraction; }, "warm-up as a part of the decay"),
      real_option(
          "lr-warmup-init", kGroup, kNotNegative, [](auto& o) -> auto& { return o.optimizer.lr_warmup_init; },
          "learning rate at the start of the warm-up"),
      choice_option<LrScaling>(
          "lr-scaling", kGroup, {{"none", LrScaling::None}, {"linear", LrScaling::Linear}, {"sqrt", LrScaling::Sqrt}},
          [](auto& o) -> auto& { return o.optimizer.lr_scaling; },
          "multiply --lr and --min-lr by (global batch / base) or its square root"),
      integer_option(
          "lr-base-batch-size", kGroup, {1, kMostCount},
          [](auto& o) -> auto& { return o.optimizer.lr_base_batch_size; },
          "--lr-scaling: global batch for which --lr was chosen"),
  };
}

}  // namespace

std::vector<OptionEntry> batch_entries() {
  constexpr OptionGroup kGroup = OptionGroup::Batch;
  return {
      other_names(
          integer_option(
              "micro-batch-size", kGroup, {1, kMostMicroBatch},
              [](auto& o) -> auto& { return o.batch.micro_batch_size; }, "samples b per forward pass and replica"),
          "train_micro_batch_size_per_gpu", "training.local_batch_size"),
      other_names(
          integer_option(
              "global-batch-size", kGroup, {1, kMostCount}, [](auto& o) -> auto& { return o.batch.global_batch_size; },
              "samples B per optimizer step; default b dp"),
          "train_batch_size", "training.global_batch_size"),
      train_iters(),
      integer_option(
          "train-samples", kGroup, {1}, [](auto& o) -> auto& { return o.batch.train_samples; }, "samples of the run"),
  };
}

std::vector<OptionEntry> optimizer_entries() {
  constexpr OptionGroup kGroup = OptionGroup::Optimizer;
  std::vector<OptionEntry> all = {
      optimizer(),
      real_option(
          "adam-beta1", kGroup, kBelowOne, [](auto& o) -> auto& { return o.optimizer.adam_beta1; },
          "decay of the first moment"),
      real_option(
          "adam-beta2", kGroup, kBelowOne, [](auto& o) -> auto& { return o.optimizer.adam_beta2; },
          "decay of the second moment"),
      real_option(
          "adam-eps", kGroup, kPositive, [](auto& o) -> auto& { return o.optimizer.adam_eps; },
          "added to the root of the second moment"),
      real_option(
          "sgd-momentum", kGroup, kBelowOne, [](auto& o) -> auto& { return o.optimizer.sgd_momentum; },
          "momentum of SGD"),
      real_option(
          "weight-decay", kGroup, kNotNegative, [](auto& o) -> auto& { return o.optimizer.weight_decay; },
          "decoupled weight decay, of matrices only"),
      other_names(real_option(
                      "clip-grad", kGroup, kNotNegative, [](auto& o) -> auto& { return o.optimizer.clip_grad; },
                      "largest global gradient norm; 0 off"),
                  "gradient_clipping", "training.max_norm"),
  };
  for (OptionEntry& entry : schedule_entries()) all.push_back(std::move(entry));
  return all;
}

std::vector<OptionEntry> precision_entries() {
  constexpr OptionGroup kGroup = OptionGroup::Precision;
  return {
      other_names(precision_switch("bf16", Precision::Bf16, "bf16 weights and activations, fp32 gradients and masters"),
                  "bf16.enabled", "training.mixed_precision_param"),
      other_names(precision_switch("fp16", Precision::Fp16, "the same with fp16 and loss scaling"), "fp16.enabled", ""),
      precision_switch("fp64", Precision::Fp64, "everything in fp64, for proofs"),
      other_names(real_option(
                      "loss-scale", kGroup, kPositive, [](auto& o) -> auto& { return o.optimizer.loss_scale; },
                      "fp16: static loss scale; default dynamic"),
                  "fp16.loss_scale", ""),
      real_option(
          "initial-loss-scale", kGroup, kPositive, [](auto& o) -> auto& { return o.optimizer.initial_loss_scale; },
          "fp16: first dynamic loss scale"),
      other_names(real_option(
                      "min-loss-scale", kGroup, kPositive, [](auto& o) -> auto& { return o.optimizer.min_loss_scale; },
                      "fp16: smallest loss scale"),
                  "fp16.min_loss_scale", ""),
      other_names(integer_option(
                      "loss-scale-window", kGroup, {1}, [](auto& o) -> auto& { return o.optimizer.loss_scale_window; },
                      "fp16: good steps before the scale doubles"),
                  "fp16.loss_scale_window", ""),
      other_names(integer_option(
                      "hysteresis", kGroup, {1}, [](auto& o) -> auto& { return o.optimizer.hysteresis; },
                      "fp16: overflows before the scale halves"),
                  "fp16.hysteresis", ""),
      choice_option<parallel::Fp8Format>(
          "fp8-format", kGroup, {{"e4m3", parallel::Fp8Format::E4M3}, {"hybrid", parallel::Fp8Format::Hybrid}},
          [](auto& o) -> auto& { return o.fp8.format; },
          "products of the linear layers in fp8 with delayed scaling; hybrid: gradients in E5M2 (GPUs from 8.9 on)"),
      integer_option(
          "fp8-margin", kGroup, {0, 64}, [](auto& o) -> auto& { return o.fp8.margin; },
          "fp8: factors leave 2^N of room"),
      integer_option(
          "fp8-amax-history-len", kGroup, {1, 65536}, [](auto& o) -> auto& { return o.fp8.amax_history_len; },
          "fp8: steps whose largest values are kept"),
      choice_option<parallel::AmaxAlgorithm>(
          "fp8-amax-compute-algo", kGroup,
          {{"most_recent", parallel::AmaxAlgorithm::MostRecent}, {"max", parallel::AmaxAlgorithm::Max}},
          [](auto& o) -> auto& { return o.fp8.algorithm; },
          "fp8: factors from the last step, or from the largest kept"),
  };
}

}  // namespace triax::io

#include "train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <typeinfo>

#include "base/error.h"
#include "io/checkpoint/directory.h"
#include "io/checkpoint/index.h"
#include "io/checkpoint/shard.h"
#include "io/options/values.h"
#include "train/lr_schedule.h"

namespace triax::train {
namespace {

bool same_directory(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() && std::filesystem::weakly_canonical(a) == std::filesystem::weakly_canonical(b);
}

std::vector<std::string> differing_options(const std::string& before, const std::string& now) {
  // Where a run writes and when it stops says nothing about what it computes.
  static const std::set<std::string> kSilent{"load",      "save",        "metrics-file",  "tensorboard-dir",
                                             "ckpt-step", "peak-tflops", "exit-interval", "exit-duration-in-mins"};
  const std::map<std::string, std::string> old_values = io::values_in(before);
  const std::map<std::string, std::string> new_values = io::values_in(now);
  std::vector<std::string> lines;
  const auto add = [&](const std::string& name, const std::string& from, const std::string& to) {
    if (from != to && !kSilent.contains(name)) lines.push_back(fmt::format("{}: {} -> {}", name, from, to));
  };
  for (const auto& [name, value] : old_values) {
    const auto found = new_values.find(name);
    add(name, value, found == new_values.end() ? "(not given)" : found->second);
  }
  for (const auto& [name, value] : new_values) {
    if (!old_values.contains(name)) add(name, "(not given)", value);
  }
  return lines;
}

struct Difference {
  const char* what;
  double before, now;
};

std::vector<std::string> schedule_differences(const io::RunOptions& before, const io::RunOptions& now) {
  const LrSchedule a = make_lr_schedule(before.optimizer, before.batch);
  const LrSchedule b = make_lr_schedule(now.optimizer, now.batch);
  const auto number = [](auto value) { return static_cast<double>(value); };
  const Difference all[] = {{"lr", a.max_lr, b.max_lr},
                            {"min-lr", a.min_lr, b.min_lr},
                            {"lr-warmup-init", a.init_lr, b.init_lr},
                            {"warm-up samples", a.warmup_samples, b.warmup_samples},
                            {"decay samples", a.decay_samples, b.decay_samples},
                            {"WSD decay samples", a.wsd_decay_samples, b.wsd_decay_samples},
                            {"lr-decay-style (0 constant, 1 linear, 2 cosine, 3 inverse-square-root, 4 WSD)",
                             number(a.style), number(b.style)},
                            {"lr-wsd-decay-style (0 exponential, 1 linear, 2 cosine, 3 minus_sqrt)",
                             number(a.wsd_style), number(b.wsd_style)},
                            {"weight-decay", before.optimizer.weight_decay, now.optimizer.weight_decay}};
  std::vector<std::string> lines;
  for (const Difference& d : all) {
    if (d.before != d.now)
      lines.push_back(fmt::format("{} {} in the checkpoint, {} in the run", d.what, d.before, d.now));
  }
  return lines;
}

/// Lengths in samples as this run counts them.
void set_length(double samples, const io::BatchOptions& batch, int64_t& iterations, int64_t& in_samples,
                const char* what) {
  const double divisor = batch.train_samples > 0 ? 1 : static_cast<double>(batch.global_batch_size);
  const double count = samples / divisor;
  if (count != std::floor(count)) {
    throw ConfigError(fmt::format(
        "--use-checkpoint-opt_param-scheduler: {} of {} samples in the checkpoint is no whole number of batches of {}: "
        "use its batch size, or --override-opt_param-scheduler with lengths of your own",
        what, samples, batch.global_batch_size));
  }
  (batch.train_samples > 0 ? in_samples : iterations) = static_cast<int64_t>(count);
}

void take_schedule(const io::RunOptions& from, io::RunOptions& to) {
  const LrSchedule schedule = make_lr_schedule(from.optimizer, from.batch);
  io::OptimizerOptions& o = to.optimizer;
  o.lr = schedule.max_lr;
  o.lr_scaling = io::LrScaling::None;
  o.min_lr = schedule.min_lr;
  o.lr_warmup_init = schedule.init_lr;
  o.lr_decay_style = schedule.style;
  o.lr_wsd_decay_style = schedule.wsd_style;
  o.weight_decay = from.optimizer.weight_decay;
  set_length(schedule.decay_samples, to.batch, o.lr_decay_iters, o.lr_decay_samples, "the decay");
  set_length(schedule.wsd_decay_samples, to.batch, o.lr_wsd_decay_iters, o.lr_wsd_decay_samples, "the WSD decay");
  o.lr_warmup_fraction = from.optimizer.lr_warmup_fraction;
  o.lr_warmup_iters = o.lr_warmup_samples = 0;
  if (o.lr_warmup_fraction > 0) return;
  set_length(schedule.warmup_samples, to.batch, o.lr_warmup_iters, o.lr_warmup_samples, "the warm-up");
}

}  // namespace

LoadRequest find_checkpoint(const io::RunControl& control) {
  if (control.load.empty()) return {};
  LoadRequest request;
  read_or_name_others("", control, [&] { request.path = io::resolve_checkpoint(control.load, control.ckpt_step); });
  if (request.path.empty()) {
    const bool restart = same_directory(control.load, control.save) && !control.exit_on_missing_checkpoint;
    if (restart && control.ckpt_step == 0) return {};
    const std::vector<int64_t> steps = io::complete_steps(control.load);
    throw ConfigError(fmt::format(
        "--load {}: there is no checkpoint{}; {}", control.load,
        control.ckpt_step > 0 ? fmt::format(" of iteration {}", control.ckpt_step) : std::string(),
        steps.empty() ? "name a directory that --save wrote" : fmt::format("there are {}", fmt::join(steps, ", "))));
  }
  if (control.ckpt_step == 0 && !io::complete_steps(control.load).empty()) {
    const std::optional<int64_t> tracked = io::tracked_step(control.load);
    if (tracked && request.path != io::step_path(control.load, *tracked)) {
      request.note = fmt::format("{}/{} names iteration {}, which is not there: {} is loaded", control.load,
                                 io::kTrackerFile, *tracked, request.path);
    }
  }
  request.mode = LoadMode::Resume;
  if (!control.load_optim) request.mode = LoadMode::NoOptimizer;
  if (control.finetune) request.mode = LoadMode::Weights;
  return request;
}

io::CheckpointHeader read_header_of(const std::string& path) {
  const bool directory = std::filesystem::is_directory(path);
  const io::Hdf5File file = io::open_file(directory ? path + "/" + io::kIndexFile : path, "checkpoint " + path);
  return io::read_checkpoint_header(file.get(), path);
}

void read_or_name_others(const std::string& path, const io::RunControl& control, const std::function<void()>& f) {
  try {
    f();
  } catch (const RunTimeError& error) {
    if (typeid(error) != typeid(RunTimeError) && typeid(error) != typeid(io::DamagedTracker)) throw;  // of a device
    std::vector<int64_t> others = io::complete_steps(control.load);
    std::erase_if(others, [&](int64_t step) { return io::step_path(control.load, step) == path; });
    if (others.empty()) throw;
    throw RunTimeError(fmt::format("{}; --ckpt-step loads {} iteration: {} {}", error.what(),
                                   path.empty() ? "an" : "another", others.size() == 1 ? "there is" : "there are",
                                   fmt::join(others, ", ")));
  }
}

io::RunOptions options_of(const io::CheckpointHeader& header) {
  const std::map<std::string, std::string> values = io::values_in(header.options);
  std::vector<std::string> words;
  for (const io::OptionEntry& entry : io::option_table()) {
    const auto found = values.find(entry.name);
    if (found == values.end() || entry.status != io::OptionStatus::Honoured) continue;
    if (entry.kind == io::ValueKind::List) {
      words.push_back("--" + entry.name);
      for (std::string& word : io::split_blanks(found->second)) words.push_back(std::move(word));
    } else {
      words.push_back("--" + entry.name + "=" + found->second);
    }
  }
  return io::parse_options(words).options;
}

std::vector<std::string> apply_resume_rules(io::RunOptions& options, const io::CheckpointHeader& header,
                                            const LoadRequest& request) {
  const auto differences = io::architecture_differences(header.weights.model, options.model);
  if (!differences.empty()) {
    throw ConfigError(
        fmt::format("--load {}: holds another model: {}; give the file's dimensions, or "
                    "--use-checkpoint-args",
                    request.path, fmt::join(differences, "; ")));
  }
  if (header.options.empty()) return {};
  std::vector<std::string> lines = differing_options(header.options, io::resolved_cfg(options));
  if (request.mode != LoadMode::Resume || options.control.skip_train) return lines;
  const io::RunOptions before = options_of(header);
  if (options.control.use_checkpoint_scheduler) {
    take_schedule(before, options);
    return differing_options(header.options, io::resolved_cfg(options));
  }
  const std::vector<std::string> schedule = schedule_differences(before, options);
  if (schedule.empty() || options.control.override_scheduler) return lines;
  throw ConfigError(
      fmt::format("--load {}: the learning-rate schedule or weight decay differs: {}; give the checkpoint's values, or "
                  "--override-opt_param-scheduler to go on with this run's, or --use-checkpoint-opt_param-scheduler",
                  request.path, fmt::join(schedule, "; ")));
}

}  // namespace triax::train

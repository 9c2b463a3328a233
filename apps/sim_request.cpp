#include "apps/sim_request.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "io/options/validate.h"
#include "plan/hardware_choice.h"

namespace triax::apps {
namespace {

using io::OptionEntry;

/// Layer passes that the exact forecast runs in about a fifth of a second.
constexpr double kQuickOps = 5e4;

OptionEntry exact_entry(SimRequest& r) {
  return text_entry("exact", "auto|all|ends|none",
                    "stages whose memory the trainer's own code is run for; auto: all where that takes no time, else "
                    "none",
                    [&r](const std::string& text) -> std::string {
                      if (text != "auto" && text != "all" && text != "ends" && text != "none") {
                        return "must be auto, all, ends or none";
                      }
                      r.exact = text;
                      return {};
                    });
}

OptionEntry scale_bandwidth_entry(SimRequest& r) {
  return text_entry("scale-bw", "LINK=X,...", "what if: bandwidth of links times X, such as nvlink=2,infiniband=0.5",
                    [&r](const std::string& text) -> std::string {
                      try {
                        r.what_if.bandwidth = plan::parse_bandwidth_factors(text);
                      } catch (const ConfigError&) {
                        return "must be LINK=X with X from 0.001 to 1000, such as nvlink=2,infiniband=0.5";
                      }
                      return {};
                    });
}

/// A what-if factor: beyond a thousand either way no machine is meant, and times leave their range.
OptionEntry factor_entry(const char* name, const char* help, double& field) {
  return text_entry(name, "X", help, [&field](const std::string& text) -> std::string {
    const std::optional<double> value = io::parse_real(text);
    if (!value || !plan::is_factor(*value)) return "must be a positive number from 0.001 to 1000";
    field = *value;
    return {};
  });
}

OptionEntry positive_entry(const char* name, const char* value_name, const char* help, double& field) {
  return text_entry(name, value_name, help, [&field](const std::string& text) -> std::string {
    const std::optional<double> value = io::parse_real(text);
    if (!value || *value <= 0) return "must be a positive number";
    field = *value;
    return {};
  });
}

OptionEntry jitter_entry(SimRequest& r) {
  return text_entry("jitter", "X", "what if: standard deviation of the logarithm of each op's time (--seed)",
                    [&r](const std::string& text) -> std::string {
                      const std::optional<double> value = io::parse_real(text);
                      if (!value || *value < 0 || *value > 2) return "must be a number from 0 to 2";
                      r.jitter = *value;
                      return {};
                    });
}

OptionEntry straggler_entry(SimRequest& r) {
  OptionEntry entry{.name = "straggler",
                    .kind = io::ValueKind::List,
                    .value_name = "rank=N:X|R:I:X ...",
                    .help = "what if: the pipeline position of rank N, or I of replica R, takes X times as long"};
  entry.set = [&r](io::RunOptions&, const std::vector<std::string>& words) -> std::string {
    r.stragglers = words;
    return {};
  };
  return entry;
}

OptionEntry directory_entry(const char* name, const char* help, std::string& field) {
  OptionEntry entry = path_entry(name, help, field);
  entry.value_name = "DIR";
  return entry;
}

plan::ExactScope scope_of(const std::string& word, const io::RunOptions& options) {
  if (word == "all") return plan::ExactScope::All;
  if (word == "ends") return plan::ExactScope::Ends;
  if (word == "none") return plan::ExactScope::None;
  const double work = plan::exact_work(options, plan::equivalent_micro_batches(options));
  return work <= kQuickOps ? plan::ExactScope::All : plan::ExactScope::None;
}

}  // namespace

std::vector<OptionEntry> sim_entries(SimRequest& r) {
  std::vector<OptionEntry> all = rank_entries(r.ranks);
  for (OptionEntry entry : {
           positive_entry("train-tokens", "X", "tokens of the whole training, such as 300e9: days and device-hours",
                          r.train_tokens),
           scale_bandwidth_entry(r),
           factor_entry("scale-flops", "what if: speed of matrix products and attention times X", r.what_if.flops),
           jitter_entry(r),
           straggler_entry(r),
           exact_entry(r),
           count_entry("replica", "with jitter or stragglers: whose times are split and drawn", 0, r.replica),
           format_entry(r.format),
           switch_entry("describe", "explains columns and keys", r.describe),
           path_entry("out", "writes the result there instead of stdout", r.out),
           path_entry("svg", "writes a picture of the step", r.svg),
           path_entry("chrome", "writes a Chrome trace of the step (Perfetto)", r.chrome),
           directory_entry("hta", "writes a trace per rank as PyTorch's profiler does, for Holistic Trace Analysis",
                           r.hta),
           directory_entry("verify", "instead of a prediction: compares it with that finished run, per category",
                           r.verify),
           directory_entry("chakra", "writes Chakra execution traces, for ASTRA-sim", r.chakra),
       }) {
    all.push_back(std::move(entry));
  }
  return all;
}

void read_sim_request(const std::vector<std::string>& args, SimRequest& r) {
  r.parsed = io::parse_options(args, sim_entries(r));
  if (r.parsed.help || r.parsed.list_models || r.parsed.list_hardware || r.describe) return;
  r.options = r.parsed.options;
  r.notes = r.parsed.notes;
  if (r.verify.empty()) require_model("sim: needs a model", r.parsed);
  if (r.options.control.hardware.empty()) {
    throw ConfigError("--hw is not given: a machine of --list-hw, or the hw.json of triax bench all");
  }
  r.hardware = plan::scaled(plan::hardware_of(r.options.control.hardware), r.what_if);
  if (!r.verify.empty()) {
    if (names_model(r.parsed)) throw ConfigError("--verify: the run's own options are used; leave out the model");
    for (const char* const option : {"chrome", "svg", "hta", "chakra", "train-tokens", "jitter", "straggler", "exact",
                                     "replica", "data-parallel-size", "world-size", "num-microbatches"}) {
      if (r.parsed.given(option)) {
        throw ConfigError(fmt::format("--{}: not with --verify, which compares a finished run; leave it out", option));
      }
    }
    return;
  }
  const int64_t d = replicas_of(r.ranks, r.options.parallel.grid);
  set_batch(r.parsed, r.ranks, d, r.options, r.notes);
  resolve_for(d, r.options);
  for (std::string& note : plan::unpriced(r.options)) r.notes.push_back(std::move(note));
  r.prediction.exact = scope_of(r.exact, r.options);
  r.options.control.jitter = r.jitter;
  r.options.control.stragglers = r.stragglers;
  r.prediction.time = io::time_options_of(r.options);
  r.prediction.train_tokens = r.train_tokens;
  if (r.replica >= d) throw ConfigError(fmt::format("--replica {}: must be from 0 to {}", r.replica, d - 1));
  r.prediction.recorded_replica = static_cast<int>(r.replica);
}

}  // namespace triax::apps

#include "plan/report/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include "base/median.h"

namespace triax::plan {
namespace {

/// Options that say where something is written, or which repeat it is.
bool tells_nothing(const std::string& name) {
  constexpr std::array kNames = {"run-dir", "metrics-file", "tensorboard-dir", "save",
                                 "seed",    "load",         "data-cache-path"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::map<std::string, std::string> identity_of(const RunData& run) {
  std::map<std::string, std::string> identity;
  for (const auto& [name, option] : run.options) {
    if (!tells_nothing(name)) identity[name] = option.value;
  }
  identity["world size"] = std::to_string(run.world_size);
  identity["data"] = run.data_hash;
  identity["commit"] = run.commit;
  identity["hosts"] = fmt::format("{}", fmt::join(std::set<std::string>(run.hosts.begin(), run.hosts.end()), " "));
  return identity;
}

std::set<std::string> values_of(const std::vector<RunGroup>& groups,
                                const std::function<std::string(const RunData&)>& field) {
  std::set<std::string> values;
  for (const RunGroup& group : groups) values.insert(field(*group.runs[0]));
  return values;
}

std::string hosts_of(const RunData& run) {
  return fmt::format("{}", fmt::join(std::set<std::string>(run.hosts.begin(), run.hosts.end()), " "));
}

std::string shown(const std::set<std::string>& values) {
  std::vector<std::string> names;
  for (const std::string& value : values) names.push_back(value.empty() ? "none" : value);
  return fmt::format("{}", fmt::join(names, " / "));
}

/// Finite values of one number per run.
std::vector<double> per_run(const RunGroup& group, const std::function<double(const RunData&)>& field) {
  std::vector<double> values;
  for (const RunData* run : group.runs) {
    if (const double value = field(*run); std::isfinite(value)) values.push_back(value);
  }
  return values;
}

}  // namespace

std::vector<RunGroup> groups_of(const std::vector<RunData>& runs) {
  std::vector<RunGroup> groups;
  std::vector<std::map<std::string, std::string>> identities;
  for (const RunData& run : runs) {
    const auto identity = identity_of(run);
    const auto found = std::find(identities.begin(), identities.end(), identity);
    if (found == identities.end()) {
      identities.push_back(identity);
      groups.push_back({run.name, {&run}});
    } else {
      groups[static_cast<size_t>(found - identities.begin())].runs.push_back(&run);
    }
  }
  return groups;
}

std::vector<DifferingOption> differing_options(const std::vector<RunGroup>& groups) {
  std::set<std::string> names;
  for (const RunGroup& group : groups) {
    for (const auto& [name, option] : group.runs[0]->options) names.insert(name);
  }
  std::vector<DifferingOption> differing;
  for (const std::string& name : names) {
    if (tells_nothing(name)) continue;
    DifferingOption one{name, {}};
    for (const RunGroup& group : groups) {
      const std::string value = group.runs[0]->option(name);
      one.values.push_back(value.empty() ? "-" : value);
    }
    // What only follows from other options would say the same twice.
    const auto follows = [&name](const RunGroup& group) {
      const auto found = group.runs[0]->options.find(name);
      return found == group.runs[0]->options.end() || found->second.origin == "derived" ||
             found->second.origin == "default";
    };
    if (std::all_of(groups.begin(), groups.end(), follows)) continue;
    if (std::set<std::string>(one.values.begin(), one.values.end()).size() > 1) differing.push_back(std::move(one));
  }
  return differing;
}

std::vector<Incomparable> incomparable(const std::vector<RunGroup>& groups) {
  std::vector<Incomparable> list;
  const auto check = [&](const std::function<std::string(const RunData&)>& field, const std::string& what,
                         const std::string& why) {
    const std::set<std::string> values = values_of(groups, field);
    if (values.size() > 1) list.push_back({what, fmt::format("{} ({})", why, shown(values))});
  };
  const auto option = [](const char* name) { return [name](const RunData& run) { return run.option(name); }; };
  check([](const RunData& r) { return r.data_hash; }, "Losses", "other data");
  check([](const RunData& r) { return r.tokenizer_hash; }, "Losses",
        "other tokenizers: a token is not the same amount of text; compare bits per byte");
  check([](const RunData& r) { return fmt::format("{:.0f}", r.parameters); }, "Losses, step times, memory",
        "other models, by number of parameters");
  check(option("global-batch-size"), "Losses by iteration, step times",
        "other global batches: compare by tokens, and tokens/s");
  check(option("seq-length"), "Losses by iteration, step times",
        "other sequence lengths: compare by tokens, and tokens/s");
  check([](const RunData& r) { return r.option("train-iters") + " of " + r.option("lr-decay-style"); },
        "Losses at the same iteration", "other lengths or shapes of the learning rate's decay");
  check([](const RunData& r) { return std::to_string(r.world_size); }, "Tokens/s, memory per rank",
        "other numbers of ranks: compare tokens/s per rank, and know that ranks of one host share its cores");
  check(hosts_of, "Times", "other hosts");
  check([](const RunData& r) { return r.device; }, "Times", "other devices");
  check(
      [](const RunData& r) {
        const auto found = r.environment.find("OMP_NUM_THREADS");
        return r.option("threads") + (found == r.environment.end() ? "" : " OMP_NUM_THREADS=" + found->second);
      },
      "Times", "other numbers of threads");
  check([](const RunData& r) { return r.commit; }, "Everything, with care", "other builds of Triax");
  check([](const RunData& r) { return fmt::format("{:.0f}", r.last("iteration")); }, "Last losses",
        "the runs are at other iterations");
  check([](const RunData& r) { return r.peak_tflops > 0 ? fmt::format("{:.3g} TFLOP/s", r.peak_tflops) : "unknown"; },
        "MFU", "other peaks, measured at each start or given: compare TFLOP/s");
  for (const RunGroup& group : groups) {
    for (const RunData* run : group.runs) {
      if (run->ended.empty()) list.push_back({"Everything of " + run->name, "it has not ended"});
    }
  }
  return list;
}

std::vector<ComparedMetric> compared_metrics(const std::vector<RunGroup>& groups) {
  constexpr std::array kStepMetrics = {"step_ms",         "tokens_per_s",    "model_tflops", "mfu",
                                       "bubble_fraction", "exposed_comm_ms", "data_wait_ms", "comm_bytes"};
  std::vector<ComparedMetric> metrics;
  const auto add = [&](const std::string& name, const std::function<Estimate(const RunGroup&)>& of) {
    ComparedMetric metric{name, {}};
    for (const RunGroup& group : groups) metric.estimates.push_back(of(group));
    const auto has = [](const Estimate& e) { return e.count > 0; };
    if (std::any_of(metric.estimates.begin(), metric.estimates.end(), has)) metrics.push_back(std::move(metric));
  };
  add("last_lm_loss", [](const RunGroup& group) {
    return estimate(per_run(group, [](const RunData& run) { return run.last("lm_loss"); }));
  });
  add("validation_loss", [](const RunGroup& group) {
    return estimate(
        per_run(group, [](const RunData& run) { return run.evaluations.empty() ? NAN : run.evaluations.back().loss; }));
  });
  for (const char* column : kStepMetrics) {
    add(column, [column](const RunGroup& group) {
      if (group.runs.size() == 1) return estimate(group.runs[0]->counted(column));
      return estimate(per_run(group, [column](const RunData& run) {
        const std::vector<double> values = run.counted(column);
        return values.empty() ? NAN : median(values);
      }));
    });
  }
  add("peak_memory_bytes", [](const RunGroup& group) {
    return estimate(per_run(group, [](const RunData& run) { return run.last("peak_memory_bytes"); }));
  });
  return metrics;
}

bool clearly_different(const Estimate& a, const Estimate& b) {
  if (!a.half_width || !b.half_width) return false;
  return std::abs(a.mean - b.mean) > *a.half_width + *b.half_width;
}

}  // namespace triax::plan

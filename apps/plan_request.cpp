#include "apps/plan_request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "apps/program_request.h"
#include "base/error.h"
#include "io/options/validate.h"
#include "model/counts.h"
#include "plan/hardware_choice.h"

namespace triax::apps {
namespace {

using io::OptionEntry;
using parallel::RecomputeGranularity;
using parallel::ScheduleKind;

constexpr int64_t kMostDevices = 1'000'000;

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else if (c != ' ') {
      words.back() += c;
    }
  }
  return words;
}

struct Limits {
  int least = 1;
  int64_t most = kMostDevices;
};

/// "1,2,4" into ascending numbers.
OptionEntry list_entry(std::string name, std::string help, Limits limits, std::vector<int>& field) {
  return text_entry(
      std::move(name), "N,N...", std::move(help), [&field, limits](const std::string& text) -> std::string {
        std::set<int> values;
        for (const std::string& word : words_of(text)) {
          const std::optional<int64_t> value = io::parse_integer(word);
          if (!value || *value < limits.least || *value > limits.most) {
            return fmt::format("must be whole numbers from {} to {}, such as 1,2", limits.least, limits.most);
          }
          values.insert(static_cast<int>(*value));
        }
        field.assign(values.begin(), values.end());
        return {};
      });
}

/// "a,b" into values of an enumeration.
template <typename T>
OptionEntry names_entry(std::string name, std::string help, std::vector<std::pair<const char*, T>> legal,
                        std::vector<T>& field) {
  std::vector<std::string> names;
  for (const auto& [text, value] : legal) names.push_back(text);
  return text_entry(std::move(name), fmt::format("{}", fmt::join(names, ",")), std::move(help),
                    [&field, legal, names](const std::string& text) -> std::string {
                      std::vector<T> values;
                      for (const std::string& word : words_of(text)) {
                        const auto at = std::ranges::find(legal, word, [](const auto& pair) { return pair.first; });
                        if (at == legal.end()) return fmt::format("must be of {}", fmt::join(names, ", "));
                        values.push_back(at->second);
                      }
                      field = values;
                      return {};
                    });
}

/// "8", "8,16" or "8..64" (powers of two times the first).
OptionEntry devices_entry(const char* name, PlanRequest& r) {
  return text_entry(name, "N|N,N...|A..B", "devices; a list or a range (A, 2A, 4A, ... B) compares the best of each",
                    [&r](const std::string& text) -> std::string {
                      const std::string rule = fmt::format("must be 8, 8,16 or 8..64, each from 1 to {}", kMostDevices);
                      const auto number = [](const std::string& word) -> int64_t {
                        const std::optional<int64_t> value = io::parse_integer(word);
                        return value && *value >= 1 && *value <= kMostDevices ? *value : 0;
                      };
                      r.devices.clear();
                      if (const size_t dots = text.find(".."); dots != std::string::npos) {
                        const int64_t first = number(text.substr(0, dots)), last = number(text.substr(dots + 2));
                        if (first == 0 || last < first) return rule;
                        for (int64_t n = first; n <= last; n *= 2) r.devices.push_back(static_cast<int>(n));
                        return {};
                      }
                      for (const std::string& word : words_of(text)) {
                        if (number(word) == 0) return rule;
                        r.devices.push_back(static_cast<int>(number(word)));
                      }
                      return r.devices.empty() ? rule : std::string();
                    });
}

OptionEntry share_entry(PlanRequest& r) {
  return text_entry("max-mem", "X", "share of a device's memory that a run may fill; default 0.92",
                    [&r](const std::string& text) -> std::string {
                      const std::optional<double> value = io::parse_real(text);
                      if (!value || !(*value > 0 && *value <= 1)) return "must be above 0 and at most 1";
                      r.question.memory_share = *value;
                      return {};
                    });
}

OptionEntry objective_entry(PlanRequest& r) {
  return text_entry("objective", "throughput|memory",
                    "memory: the least memory among layouts at most a tenth slower than the fastest",
                    [&r](const std::string& text) -> std::string {
                      if (text != "throughput" && text != "memory") return "must be throughput or memory";
                      r.question.objective = text == "memory" ? plan::Objective::Memory : plan::Objective::Throughput;
                      return {};
                    });
}

OptionEntry small_count(std::string name, std::string help, int& field) {
  return text_entry(std::move(name), "N", std::move(help), [&field](const std::string& text) -> std::string {
    const std::optional<int64_t> value = io::parse_integer(text);
    if (!value || *value < 1 || *value > 10000) return "must be a whole number from 1 to 10000";
    field = static_cast<int>(*value);
    return {};
  });
}

std::vector<OptionEntry> axis_entries(plan::PlanSpace& space) {
  return {
      list_entry("tp", "tensor parallel sizes to choose from; default: up to a node", {}, space.tensor),
      list_entry("pp", "pipeline sizes", {}, space.pipeline),
      list_entry("vpp", "virtual stages per rank", {}, space.chunks),
      list_entry("zero", "ZeRO stages", {0, 3}, space.zero),
      list_entry("shard-groups", "dp ranks over which ZeRO shards; default: all, and those of a node", {},
                 space.shard_group),
      list_entry("micro-batches", "micro-batch sizes", {}, space.micro_batch),
      names_entry<ScheduleKind>("schedules", "pipeline schedules",
                                {{"gpipe", ScheduleKind::GPipe},
                                 {"1f1b", ScheduleKind::OneFOneB},
                                 {"interleaved", ScheduleKind::Interleaved},
                                 {"zb-h1", ScheduleKind::ZeroBubbleH1},
                                 {"zb-h2", ScheduleKind::ZeroBubbleH2},
                                 {"zb-v", ScheduleKind::ZeroBubbleV}},
                                space.schedules),
      names_entry<RecomputeGranularity>("recompute", "what the backward computes again",
                                        {{"none", RecomputeGranularity::None},
                                         {"selective", RecomputeGranularity::Selective},
                                         {"full", RecomputeGranularity::Full}},
                                        space.recompute),
      names_entry<comm::RankOrder>("rank-orders", "tp innermost, then",
                                   {{"tp-dp-pp", comm::RankOrder::TpCpDpPp}, {"tp-pp-dp", comm::RankOrder::TpCpPpDp}},
                                   space.orders),
  };
}

/// An axis that the table's own option fixes; `list` is the option that restricts the same axis.
template <typename T>
void fix(const PlanRequest& r, const char* option, const char* list, T value, std::vector<T>& axis) {
  if (!r.parsed.given(option)) return;
  if (r.parsed.given(list) && std::ranges::find(axis, value) == axis.end()) {
    throw ConfigError(fmt::format("--{}: its value is none of --{}; give one of the two", option, list));
  }
  axis = {value};
}

void fix_given_axes(PlanRequest& r) {
  const io::RunOptions& o = r.parsed.options;
  plan::PlanSpace& space = r.question.space;
  fix(r, "tensor-model-parallel-size", "tp", o.parallel.grid.tensor, space.tensor);
  fix(r, "pipeline-model-parallel-size", "pp", o.parallel.grid.pipeline, space.pipeline);
  fix(r, "num-virtual-stages-per-pipeline-rank", "vpp", o.parallel.chunks, space.chunks);
  fix(r, "zero-stage", "zero", o.parallel.zero_stage, space.zero);
  fix(r, "use-distributed-optimizer", "zero", o.parallel.zero_stage, space.zero);
  fix(r, "zero-shard-group", "shard-groups", o.parallel.zero_shard_group, space.shard_group);
  fix(r, "micro-batch-size", "micro-batches", static_cast<int>(o.batch.micro_batch_size), space.micro_batch);
  fix(r, "pipeline-schedule", "schedules", o.parallel.schedule, space.schedules);
  fix(r, "recompute-granularity", "recompute", o.parallel.recompute.granularity, space.recompute);
  fix(r, "recompute-activations", "recompute", o.parallel.recompute.granularity, space.recompute);
  fix(r, "sequence-parallel", "", o.parallel.sequence_parallel, space.sequence_parallel);
  fix(r, "use-tp-pp-dp-mapping", "rank-orders", o.parallel.grid.order, space.orders);
}

/// Given, and not as the default: a file of all options of a run names those that are off, too.
bool differs(const PlanRequest& r, const std::string& option) {
  if (!r.parsed.given(option)) return false;
  const auto entry = std::ranges::find(io::option_table(), option, &OptionEntry::name);
  return !entry->get || entry->get(r.parsed.options) != entry->get({});
}

/// Options that place layers or shards by hand: no axis of the planner stands for them.
void check_by_hand(const PlanRequest& r) {
  constexpr std::array<std::pair<const char*, const char*>, 5> kByHand{
      {{"num-layers-per-virtual-pipeline-stage", "--vpp chooses virtual stages"},
       {"decoder-first-pipeline-num-layers", "layers are spread evenly"},
       {"decoder-last-pipeline-num-layers", "layers are spread evenly"},
       {"pipeline-model-parallel-layout", "layers are spread evenly"},
       {"zero-hpz-partition-size", "--shard-groups chooses hybrid sharding"}}};
  for (const auto& [name, why] : kByHand) {
    if (differs(r, name)) {
      throw ConfigError(
          fmt::format("--{}: plan does not choose among such layouts ({}); 'triax sim' prices one", name, why));
    }
  }
}

void check_batch(PlanRequest& r) {
  io::RunOptions& base = r.question.base;
  if (base.model.num_layers == 0 || base.model.hidden_size == 0) {
    throw ConfigError("plan: needs a model: --model NAME (--list-models) or its dimensions");
  }
  if (base.model.vocab_size == 0) {
    throw ConfigError("--vocab-size is not given: the number of token ids, or a named model with --model");
  }
  if (base.batch.global_batch_size == 0) {
    throw ConfigError("--global-batch-size is not given: samples of a step; layouts are compared at the same batch");
  }
  check_by_hand(r);
  if (base.parallel.schedule == ScheduleKind::Csv) {
    throw ConfigError("--pipeline-schedule csv: fixes stages and micro-batches; 'triax sim' prices such a run");
  }
}

}  // namespace

std::vector<OptionEntry> plan_entries(PlanRequest& r) {
  std::vector<OptionEntry> all = {
      text_entry("hw", "NAME|hw.json", "the machine (--list-hw), or what 'triax bench all' measured",
                 [&r](const std::string& text) -> std::string {
                   r.hw = text;
                   return {};
                 }),
      devices_entry("gpus", r),
      devices_entry("world-size", r),
  };
  for (OptionEntry& entry : axis_entries(r.question.space)) all.push_back(std::move(entry));
  all.push_back(share_entry(r));
  all.push_back(objective_entry(r));
  all.push_back(small_count("top", "layouts shown; default 10", r.shown));
  all.push_back(small_count("simulate", "layouts simulated op by op; default 24", r.question.simulated));
  all.push_back(small_count("try", "runs the best N for 20 steps and prints predicted beside measured", r.tried));
  all.push_back(text_entry("launcher", "LINE", "how --try starts ranks; default: mpiexec -n {ranks}",
                           [&r](const std::string& text) -> std::string {
                             r.launcher = text;
                             return {};
                           }));
  all.push_back(path_entry("verify", "compares the prediction with that finished run, per category", r.verify));
  all.push_back(text_entry("emit", "DIR", "directory for plan.json, run.cfg and run.slurm of the best layout",
                           [&r](const std::string& text) -> std::string {
                             r.emit = text;
                             return {};
                           }));
  all.push_back(format_entry(r.format));
  all.push_back(switch_entry("describe", "explains columns and keys", r.describe));
  all.push_back(path_entry("out", "writes the result there instead of stdout", r.out));
  return all;
}

void read_plan_request(const std::vector<std::string>& args, PlanRequest& r) {
  r.parsed = io::parse_options(args, plan_entries(r));
  if (r.parsed.help || r.parsed.list_models || r.parsed.list_hardware || r.describe) return;
  r.question.base = r.parsed.options;
  r.notes = r.parsed.notes;
  if (r.hw.empty()) {
    throw ConfigError("--hw is not given: a machine by name (--list-hw) or the hw.json that 'triax bench all' writes");
  }
  r.question.hardware = plan::hardware_of(r.hw);
  if (!r.verify.empty()) {  // the run says the rest
    for (const char* const option :
         {"model", "gpus", "global-batch-size", "try", "emit", "top", "simulate", "objective"}) {
      if (r.parsed.given(option)) {
        throw ConfigError(fmt::format("--{}: not with --verify, which compares a finished run; leave it out", option));
      }
    }
    return;
  }
  check_batch(r);
  for (std::string& note : plan::unpriced(r.question.base)) r.notes.push_back(std::move(note));
  fix_given_axes(r);
  if (r.devices.empty()) throw ConfigError("--gpus is not given: how many devices the layouts may use");
  if (r.devices.size() > 1 && (r.tried > 0 || !r.emit.empty())) {
    throw ConfigError("--gpus: --try and --emit are about one number of devices");
  }
  r.question.devices = r.devices.front();
}

plan::PlanQuestion question_for(const PlanRequest& request, int devices) {
  plan::PlanQuestion question = request.question;
  question.devices = devices;
  return question;
}

}  // namespace triax::apps

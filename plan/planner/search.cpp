#include "plan/planner/search.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "io/options/validate.h"
#include "plan/planner/quick_memory.h"

namespace triax::plan {
namespace {

/// Variants of one (tp, pp, zero, shard group) that may be simulated: the closed forms do not order neighbours exactly.
constexpr size_t kVariants = 2;
/// Layouts that the trainer refuses before the search stops asking.
constexpr size_t kMostRefused = 200;

/// A run of one device that stands for the question: its options are legal whatever the layouts are. What only some
/// layouts have comes with each of them.
StepShape base_shape(const io::RunOptions& base) {
  io::RunOptions one = options_of(base, Layout{});
  one.parallel.recompute.num_layers = 1;
  one.parallel.microbatch_group_size = 0;
  io::resolve(one, 1, io::Purpose::Plan);
  return shape_of(one);
}

/// Prices layouts; what layouts share is priced once.
class Pricer {
 public:
  explicit Pricer(const PlanQuestion& q)
      : question_(q),
        software_(*find_software("triax")),
        base_(base_shape(q.base)),
        pricing_(q.hardware, software_, base_.dtype),
        memory_(q.base),
        runtime_bytes_(runtime_bytes_of(q.hardware)) {}

  Candidate operator()(const Layout& layout) {
    const StepShape shape = shape_of(base_, question_.base, layout);
    Candidate candidate{layout, {}, runtime_bytes_ + memory_.bytes(layout, shape)};
    candidate.time = step_time(pricing_, shape, costs_of_layers(shape));
    return candidate;
  }

 private:
  using Key = std::tuple<int, bool, int64_t, parallel::RecomputeGranularity, int, int, int, int, int>;

  const LayerCosts& costs_of_layers(const StepShape& shape) {
    GroupPlace place;
    if (shape.zero >= 2) place = shard_place(pricing_, shape);
    const Key key{shape.tensor,
                  shape.sequence_parallel,
                  shape.micro_batch,
                  shape.recompute,
                  shape.zero >= 2 ? shape.zero : 0,
                  place.ranks,
                  place.nodes,
                  place.sharers,
                  place.apart};
    const auto at = costs_.find(key);
    if (at != costs_.end()) return at->second;
    return costs_.emplace(key, layer_costs(pricing_, shape)).first->second;
  }

  const PlanQuestion& question_;
  const Software& software_;
  StepShape base_;
  Pricing pricing_;
  QuickMemory memory_;
  double runtime_bytes_;
  std::map<Key, LayerCosts> costs_;
};

bool faster(const Candidate& a, const Candidate& b) {
  if (a.time.step_s != b.time.step_s) return a.time.step_s < b.time.step_s;
  return a.bytes < b.bytes;
}

using Family = std::tuple<int, int, int, int>;
Family family_of(const Layout& l) { return {l.tensor, l.pipeline, l.zero, l.zero > 0 ? l.shard_group : 0}; }

void summarise(const Candidate& candidate, bool fits, ValueSummary& summary) {
  ++summary.layouts;
  if (fits) ++summary.fitting;
  if (fits && (!summary.best || faster(candidate, *summary.best))) summary.best = candidate;
  if (!summary.smallest || candidate.bytes < summary.smallest->bytes) summary.smallest = candidate;
}

/// The best few of each family.
class Families {
 public:
  void take(const Candidate& candidate) {
    std::vector<Candidate>& best = best_[family_of(candidate.layout)];
    if (best.size() == kVariants && !faster(candidate, best.back())) return;
    best.insert(std::ranges::upper_bound(best, candidate, faster), candidate);
    if (best.size() > kVariants) best.pop_back();
  }
  /// Best first, all variants.
  std::vector<Candidate> sorted() const {
    std::vector<Candidate> all;
    for (const auto& [family, best] : best_) all.insert(all.end(), best.begin(), best.end());
    std::ranges::stable_sort(all, faster);
    return all;
  }

 private:
  std::map<Family, std::vector<Candidate>> best_;
};

/// Fastest and smallest of everything but schedule, virtual stages and rank order.
class ThreadPool {
 public:
  void take(const Candidate& candidate) {
    const Layout& l = candidate.layout;
    const Key key{l.tensor,           l.pipeline, l.zero, l.shard_group, l.micro_batch, static_cast<int>(l.recompute),
                  l.sequence_parallel};
    const auto [at, fresh] = ends_.try_emplace(key, candidate, candidate);
    if (fresh) return;
    if (faster(candidate, at->second.first)) at->second.first = candidate;
    if (candidate.bytes < at->second.second.bytes) at->second.second = candidate;
  }
  std::vector<Layout> layouts() const {
    std::vector<Layout> all;
    for (const auto& [key, ends] : ends_) {
      all.push_back(ends.first.layout);
      if (!(ends.second.layout == ends.first.layout)) all.push_back(ends.second.layout);
    }
    return all;
  }

 private:
  using Key = std::tuple<int, int, int, int, int, int, bool>;
  std::map<Key, std::pair<Candidate, Candidate>> ends_;
};

std::vector<Candidate> first_of_families(const std::vector<Candidate>& sorted) {
  std::vector<Candidate> first;
  std::map<Family, bool> seen;
  for (const Candidate& candidate : sorted) {
    if (seen.try_emplace(family_of(candidate.layout), true).second) first.push_back(candidate);
  }
  return first;
}

SearchResult price_all(const PlanQuestion& q, std::vector<Candidate>& sorted) {
  if (q.base.batch.global_batch_size <= 0) throw ConfigError("--global-batch-size is not given: samples of a step");
  if (q.hardware.memory_bytes.value <= 0) {
    throw ConfigError(
        fmt::format("--hw {}: its description has no memory (memory_bytes is 0), so nothing could fit; "
                    "write the bytes of a device",
                    q.hardware.name));
  }
  SearchResult result;
  Pricer price_of(q);
  Families families;
  ThreadPool pool;
  const double limit = q.limit_bytes();
  // One cell per axis and small value; a map would cost more than the prices.
  std::array<std::map<int, ValueSummary>, kNumPlanAxes> values;
  for_each_layout(q.base, q.devices, q.hardware.devices_per_node, q.space, result.broken, [&](const Layout& layout) {
    const Candidate candidate = price_of(layout);
    const bool fits = candidate.bytes <= limit;
    ++result.layouts;
    if (fits) {
      ++result.fitting;
      families.take(candidate);
    }
    pool.take(candidate);
    if (!result.smallest || candidate.bytes < result.smallest->bytes) result.smallest = candidate;
    for (int axis = 0; axis < kNumPlanAxes; ++axis) {
      summarise(candidate, fits, values[static_cast<size_t>(axis)][value_of(layout, static_cast<PlanAxis>(axis))]);
    }
  });
  for (int axis = 0; axis < kNumPlanAxes; ++axis) {
    for (auto& [value, summary] : values[static_cast<size_t>(axis)]) {
      result.values.emplace(std::pair{static_cast<PlanAxis>(axis), value}, std::move(summary));
    }
  }
  result.pool = pool.layouts();
  sorted = families.sorted();
  result.ranked = first_of_families(sorted);
  return result;
}

void simulate_best(const PlanQuestion& q, const std::vector<Candidate>& sorted, SearchResult& result) {
  const double limit = q.limit_bytes();
  int left = q.simulated;
  for (const Candidate& candidate : sorted) {
    if (left == 0 || result.refused.size() >= kMostRefused) break;
    io::RunOptions options = options_of(q.base, candidate.layout);
    try {
      io::resolve(options, q.devices, io::Purpose::Plan);
      Choice choice{candidate.layout, candidate.time, predict(options, q.hardware), options};
      const StagePrediction& fullest = choice.prediction.stages[static_cast<size_t>(choice.prediction.fullest)];
      if (static_cast<double>(fullest.bytes()) > limit) continue;
      --left;
      // The program of each is large, and only the one that is printed in full is asked for again.
      choice.prediction.simulated.reset();
      result.choices.push_back(std::move(choice));
    } catch (const ConfigError& error) {
      result.refused.push_back(fmt::format("{}: {}", text_of(candidate.layout), error.what()));
    }
  }
  if (result.choices.empty() && !result.refused.empty()) {
    throw ConfigError(fmt::format("the trainer takes none of the layouts that fit; {}", result.refused.front()));
  }
  std::ranges::stable_sort(result.choices, [](const Choice& a, const Choice& b) { return a.step_s() < b.step_s(); });
}

int64_t bytes_of(const Choice& choice) {
  return choice.prediction.stages[static_cast<size_t>(choice.prediction.fullest)].bytes();
}

}  // namespace

double PlanQuestion::limit_bytes() const { return memory_share * hardware.memory_bytes.value; }

SearchResult survey(const PlanQuestion& question) {
  std::vector<Candidate> sorted;
  return price_all(question, sorted);
}

SearchResult search(const PlanQuestion& question) {
  std::vector<Candidate> sorted;
  SearchResult result = price_all(question, sorted);
  simulate_best(question, sorted, result);
  if (question.objective == Objective::Memory && !result.choices.empty()) {
    const double longest = 1.1 * result.choices.front().step_s();
    std::ranges::stable_sort(result.choices, [longest](const Choice& a, const Choice& b) {
      const bool slow_a = a.step_s() > longest, slow_b = b.step_s() > longest;
      if (slow_a != slow_b) return slow_b;
      return slow_a ? a.step_s() < b.step_s() : bytes_of(a) < bytes_of(b);
    });
  }
  return result;
}

Candidate price(const PlanQuestion& question, const Layout& layout) { return Pricer(question)(layout); }

std::optional<Candidate> fastest_of(const PlanQuestion& question, std::span<const Layout> layouts) {
  Pricer price_of(question);
  const double limit = question.limit_bytes();
  std::optional<Candidate> best;
  for (const Layout& layout : layouts) {
    const Candidate candidate = price_of(layout);
    if (candidate.bytes <= limit && (!best || faster(candidate, *best))) best = candidate;
  }
  return best;
}

}  // namespace triax::plan

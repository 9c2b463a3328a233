#include "plan/planner/space.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/options/validate.h"

namespace triax::plan {
namespace {

using parallel::RecomputeGranularity;
using parallel::ScheduleKind;

constexpr std::array kAllRecompute = {RecomputeGranularity::None, RecomputeGranularity::Selective,
                                      RecomputeGranularity::Full};
constexpr std::array kAllSchedules = {ScheduleKind::OneFOneB,     ScheduleKind::Interleaved, ScheduleKind::ZeroBubbleH1,
                                      ScheduleKind::ZeroBubbleH2, ScheduleKind::ZeroBubbleV, ScheduleKind::GPipe};

std::vector<int> divisors(int64_t n, int64_t most) {
  std::vector<int> all;
  for (int64_t d = 1; d <= std::min(n, most); ++d) {
    if (n % d == 0) all.push_back(static_cast<int>(d));
  }
  return all;
}

/// Rule that t breaks, empty when it breaks none.
std::string tensor_fault(const model::ModelConfig& m, int64_t t) {
  const auto divides = [t](int64_t value) { return value % t == 0; };
  if (!divides(m.num_attention_heads)) return fmt::format("must divide the {} attention heads", m.num_attention_heads);
  if (!divides(m.hidden_size)) return fmt::format("must divide the hidden size {}", m.hidden_size);
  if (!divides(m.ffn_hidden_size)) return fmt::format("must divide the MLP width {}", m.ffn_hidden_size);
  if (!divides(m.num_query_groups) && t % m.num_query_groups != 0) {
    return fmt::format("must divide or be a multiple of the {} KV heads", m.num_query_groups);
  }
  return {};
}

/// The loops over what a layer's times depend on come first (see for_each_layout).
class SpaceWalk {
 public:
  SpaceWalk(const io::RunOptions& base, int devices, int per_node, const PlanSpace& space, BrokenRules& broken,
            const std::function<void(const Layout&)>& visit)
      : base_(base), devices_(devices), per_node_(per_node), space_(space), broken_(broken), visit_(visit) {}

  void run() {
    std::vector<int> sizes = space_.tensor;
    if (sizes.empty()) sizes = divisors(devices_, space_.most_tensor > 0 ? space_.most_tensor : per_node_);
    for (const int tensor : sizes) {
      if (devices_ % tensor != 0) {
        note(PlanAxis::Tensor, tensor, fmt::format("must divide the {} devices", devices_));
        continue;
      }
      if (const std::string fault = tensor_fault(base_.model, tensor); !fault.empty()) {
        note(PlanAxis::Tensor, tensor, fault);
        continue;
      }
      layout_.tensor = tensor;
      over_sequence_parallel();
    }
  }

 private:
  void note(PlanAxis axis, int value, std::string rule) { broken_.try_emplace({axis, value}, std::move(rule)); }

  void over_sequence_parallel() {
    std::vector<bool> values = space_.sequence_parallel;
    if (values.empty()) values = {false, true};
    if (layout_.tensor == 1) values = {false};
    for (const bool on : values) {
      if (on && base_.model.seq_length % layout_.tensor != 0) {
        note(PlanAxis::SequenceParallel, 1, fmt::format("tp {} must divide the sequence", layout_.tensor));
        continue;
      }
      layout_.sequence_parallel = on;
      for (const int pipeline : pipelines()) {
        layout_.pipeline = pipeline;
        layout_.data = devices_ / layout_.tensor / pipeline;
        over_micro_batches();
      }
    }
  }

  std::vector<int> pipelines() {
    const int rest = devices_ / layout_.tensor;
    std::vector<int> sizes = space_.pipeline;
    if (sizes.empty()) sizes = divisors(rest, base_.model.num_layers);
    std::erase_if(sizes, [&](int p) {
      if (rest % p != 0) {
        note(PlanAxis::Pipeline, p, fmt::format("tp x pp must divide the {} devices", devices_));
      } else if (p > base_.model.num_layers) {
        note(PlanAxis::Pipeline, p, fmt::format("has more stages than the model's {} layers", base_.model.num_layers));
      } else if (base_.batch.global_batch_size % (rest / p) != 0) {
        note(PlanAxis::Pipeline, p,
             fmt::format("leaves {} replicas, over which the global batch of {} does not divide", rest / p,
                         base_.batch.global_batch_size));
      } else {
        return false;
      }
      return true;
    });
    return sizes;
  }

  void over_micro_batches() {
    const int64_t per_replica = base_.batch.global_batch_size / layout_.data;
    std::vector<int> sizes = space_.micro_batch;
    if (sizes.empty()) sizes = divisors(per_replica, 64);
    for (const int size : sizes) {
      if (per_replica % size != 0) {
        note(PlanAxis::MicroBatch, size, fmt::format("must divide the {} samples of a replica", per_replica));
        continue;
      }
      layout_.micro_batch = size;
      for (const RecomputeGranularity recompute : all_or(space_.recompute, kAllRecompute)) {
        layout_.recompute = recompute;
        over_orders();
      }
    }
  }

  void over_orders() {
    std::vector<comm::RankOrder> orders = space_.orders;
    if (orders.empty()) orders = {comm::RankOrder::TpCpDpPp, comm::RankOrder::TpCpPpDp};
    // Without both axes the two orders are the same ranks.
    const bool same = layout_.pipeline == 1 || layout_.data == 1 || devices_ <= per_node_;
    for (size_t i = 0; i < (same ? 1 : orders.size()); ++i) {
      layout_.order = orders[i];
      over_zero();
    }
  }

  void over_zero() {
    std::vector<int> stages = space_.zero;
    if (stages.empty()) stages = {0, 1, 2, 3};
    for (const int stage : stages) {
      if (stage > 0 && layout_.data == 1) {
        note(PlanAxis::Zero, stage, "has nothing to cut over one replica");
        continue;
      }
      layout_.zero = stage;
      for (const int group : shard_groups()) {
        layout_.shard_group = group;
        over_schedules();
      }
    }
  }

  std::vector<int> shard_groups() {
    if (layout_.zero == 0) return {layout_.data};
    std::vector<int> groups = space_.shard_group;
    if (groups.empty()) {
      groups = {layout_.data};
      // Hybrid: as many replicas as a node holds, over the fast links alone.
      const int inside = per_node_ / layout_.tensor;
      if (inside > 1 && inside < layout_.data && layout_.data % inside == 0) groups.push_back(inside);
    }
    std::erase_if(groups, [&](int group) {
      if (layout_.data % group == 0) return false;
      note(PlanAxis::ShardGroup, group, fmt::format("must divide the {} replicas", layout_.data));
      return true;
    });
    return groups;
  }

  void over_schedules() {
    if (layout_.pipeline == 1) {
      if (!space_.chunks.empty() && std::ranges::count(space_.chunks, 1) == 0) return;
      layout_.chunks = 1;
      layout_.schedule = ScheduleKind::OneFOneB;
      if (runs()) visit_(layout_);
      return;
    }
    for (const ScheduleKind kind : all_or(space_.schedules, kAllSchedules)) {
      layout_.schedule = kind;
      for (const int chunks : chunk_counts(kind)) {
        layout_.chunks = chunks;
        if (runs()) visit_(layout_);
      }
    }
  }

  std::vector<int> chunk_counts(ScheduleKind kind) const {
    const auto most = static_cast<int>(base_.model.num_layers / layout_.pipeline);
    std::vector<int> counts;
    if (kind == ScheduleKind::ZeroBubbleV) {
      counts = {2};
    } else if (kind != ScheduleKind::Interleaved) {
      counts = {1};
    } else {
      for (int v = 2; v <= most; ++v) {
        if (base_.model.num_layers % (int64_t{v} * layout_.pipeline) == 0) counts.push_back(v);
      }
    }
    std::erase_if(counts, [&](int v) {
      return v > most || (!space_.chunks.empty() && std::ranges::count(space_.chunks, v) == 0);
    });
    return counts;
  }

  bool runs() {
    parallel::ScheduleOptions schedule;
    schedule.kind = layout_.schedule;
    schedule.pipeline = layout_.pipeline;
    schedule.chunks = layout_.chunks;
    schedule.group_size =
        base_.parallel.microbatch_group_size > 0 ? base_.parallel.microbatch_group_size : layout_.pipeline;
    schedule.num_micro_batches = static_cast<int>(base_.batch.global_batch_size / layout_.data / layout_.micro_batch);
    const parallel::Recompute& recompute = base_.parallel.recompute;
    const int64_t virtual_stages = int64_t{layout_.pipeline} * layout_.chunks;
    const int64_t largest = (base_.model.num_layers + virtual_stages - 1) / virtual_stages;
    if (layout_.recompute == RecomputeGranularity::Full && recompute.num_layers > largest) {
      note(PlanAxis::Recompute, static_cast<int>(layout_.recompute),
           fmt::format("--recompute-num-layers {} is more than a stage has", recompute.num_layers));
      return false;
    }
    const std::string fault = parallel::check_schedule(schedule);
    if (!fault.empty()) note(PlanAxis::Schedule, static_cast<int>(layout_.schedule), fault);
    return fault.empty();
  }

  template <typename T, size_t N>
  static std::vector<T> all_or(const std::vector<T>& given, const std::array<T, N>& all) {
    return given.empty() ? std::vector<T>(all.begin(), all.end()) : given;
  }

  const io::RunOptions& base_;
  int devices_, per_node_;
  const PlanSpace& space_;
  BrokenRules& broken_;
  const std::function<void(const Layout&)>& visit_;
  Layout layout_;
};

}  // namespace

const char* name_of(PlanAxis axis) {
  constexpr std::array<const char*, kNumPlanAxes> kNames = {
      "tp",          "pp",          "vpp",       "schedule",          "zero",
      "shard group", "micro-batch", "recompute", "sequence parallel", "rank order"};
  return kNames[static_cast<size_t>(axis)];
}

int value_of(const Layout& layout, PlanAxis axis) {
  switch (axis) {
    case PlanAxis::Tensor:
      return layout.tensor;
    case PlanAxis::Pipeline:
      return layout.pipeline;
    case PlanAxis::Chunks:
      return layout.chunks;
    case PlanAxis::Schedule:
      return static_cast<int>(layout.schedule);
    case PlanAxis::Zero:
      return layout.zero;
    case PlanAxis::ShardGroup:
      return layout.zero > 0 ? layout.shard_group : 0;
    case PlanAxis::MicroBatch:
      return layout.micro_batch;
    case PlanAxis::Recompute:
      return static_cast<int>(layout.recompute);
    case PlanAxis::SequenceParallel:
      return layout.sequence_parallel ? 1 : 0;
    case PlanAxis::Order:
      return static_cast<int>(layout.order);
  }
  return 0;
}

std::string text_of(PlanAxis axis, int value) {
  switch (axis) {
    case PlanAxis::Schedule:
      return parallel::name_of(static_cast<ScheduleKind>(value));
    case PlanAxis::Recompute:
      return name_of(static_cast<RecomputeGranularity>(value));
    case PlanAxis::SequenceParallel:
      return value != 0 ? "on" : "off";
    case PlanAxis::Order:
      return static_cast<comm::RankOrder>(value) == comm::RankOrder::TpCpDpPp ? "tp-dp-pp" : "tp-pp-dp";
    case PlanAxis::ShardGroup:
      return value == 0 ? "none" : std::to_string(value);
    default:
      return std::to_string(value);
  }
}

std::string text_of(const Layout& layout) {
  std::string text = fmt::format("tp{} pp{} dp{} zero{}", layout.tensor, layout.pipeline, layout.data, layout.zero);
  if (layout.zero > 0 && layout.shard_group != layout.data) text += fmt::format("/{}", layout.shard_group);
  text += fmt::format(" b{} {}", layout.micro_batch,
                      layout.recompute == RecomputeGranularity::None
                          ? "no-recompute"
                          : std::string(name_of(layout.recompute)) + "-recompute");
  if (layout.sequence_parallel) text += " sp";
  if (layout.pipeline > 1) text += fmt::format(" {}", parallel::name_of(layout.schedule));
  if (layout.chunks > 1) text += fmt::format(" v{}", layout.chunks);
  if (layout.order == comm::RankOrder::TpCpPpDp) text += " tp-pp-dp";
  return text;
}

void for_each_layout(const io::RunOptions& base, int devices, int devices_per_node, const PlanSpace& space,
                     BrokenRules& broken, const std::function<void(const Layout&)>& visit) {
  SpaceWalk(base, devices, devices_per_node, space, broken, visit).run();
}

io::RunOptions options_of(const io::RunOptions& base, const Layout& layout) {
  io::RunOptions options = base;
  io::ParallelOptions& p = options.parallel;
  p.grid.tensor = layout.tensor;
  p.grid.pipeline = layout.pipeline;
  p.grid.data = layout.data;
  p.grid.order = layout.order;
  p.chunks = layout.chunks;
  p.schedule = layout.schedule;
  p.zero_stage = layout.zero;
  p.zero_shard_group = layout.zero > 0 && layout.shard_group != layout.data ? layout.shard_group : 0;
  if (layout.zero != 3) {
    p.zero_keep = parallel::KeepGathered::Forward;
    p.zero_quantized_weights = false;
  }
  p.recompute.granularity = layout.recompute;
  p.sequence_parallel = layout.sequence_parallel;
  p.ddp_bucket_size = base.parallel.ddp_bucket_size;
  options.batch.micro_batch_size = layout.micro_batch;
  options.batch.num_micro_batches = 0;
  return options;
}

StepShape shape_of(const StepShape& base, const io::RunOptions& run, const Layout& layout) {
  StepShape s = base;
  s.vocab = run.model.padded_vocab_size(layout.tensor);
  s.order = layout.order;
  s.tensor = layout.tensor;
  s.pipeline = layout.pipeline;
  s.chunks = layout.chunks;
  s.data = layout.data;
  s.sequence_parallel = layout.sequence_parallel;
  s.schedule = layout.schedule;
  s.zero = layout.data > 1 ? layout.zero : 0;
  s.shard_group = layout.zero > 0 ? layout.shard_group : layout.data;
  s.keep = layout.zero == 3 ? run.parallel.zero_keep : parallel::KeepGathered::Forward;
  s.gather_bytes = layout.zero == 3 && run.parallel.zero_quantized_weights ? 1 : s.element_bytes;
  s.recompute = layout.recompute;
  parallel::Recompute recompute = run.parallel.recompute;
  recompute.granularity = layout.recompute;
  const int64_t virtual_stages = int64_t{layout.pipeline} * layout.chunks;
  s.recomputed_layers = recomputed_of_chunk(recompute, (s.layers + virtual_stages - 1) / virtual_stages);
  s.micro_batch = layout.micro_batch;
  s.num_micro_batches = run.batch.global_batch_size / layout.data / layout.micro_batch;
  return s;
}

}  // namespace triax::plan

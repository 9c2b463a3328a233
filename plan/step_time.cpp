#include "plan/step_time.h"

#include <algorithm>
#include <cmath>

namespace triax::plan {
namespace {

using comm::Operation;
using parallel::ScheduleKind;

/// A transfer beside compute: what sticks out, and what the compute loses to it.
double beside(double transfer_s, double compute_s, double contention) {
  const double covered = std::min(transfer_s, compute_s / (1 - std::min(contention, 0.9)));
  return transfer_s - covered + covered * contention;
}

double gradient_bytes(const Pricing& p, const StepShape& s) {
  return static_cast<double>(p.software.gradient_bytes > 0 ? p.software.gradient_bytes : s.gradient_bytes);
}

/// The ranks of dp that hold the same shard of `group`.
GroupPlace replica_place(const Pricing& p, const StepShape& s, int group) {
  const int stride = s.order == comm::RankOrder::TpCpDpPp ? s.tensor : s.tensor * s.pipeline;
  return place_of(s.data / std::max(1, group), stride * group, p.devices_per_node, s.ranks());
}

/// A gather or reduction of sharded weights, no faster than the program issues it.
double shard_s(const Pricing& p, Operation operation, const GroupPlace& place, double bytes) {
  const double time = p.collectives.time_s(operation, place, bytes);
  const double rate = p.software.shard_bytes_per_s.value;
  return rate > 0 ? std::max(time, bytes / rate) : time;
}

/// Gathers and reductions inside the passes: each unit's beside the pass of a layer, alone where nothing is overlapped.
void add_sharding(const Pricing& p, const StepShape& s, LayerCosts& costs) {
  if (s.zero < 2 || s.data <= 1) return;
  const GroupPlace weights = shard_place(p, s);
  const GroupPlace states = state_place(p, s);
  const double word = static_cast<double>(s.vocab) * static_cast<double>(s.hidden) / s.tensor;
  const ShapeParameters each = parameters_of(s);
  const auto gather = [&](double parameters) {
    if (s.zero < 3) return 0.0;
    return shard_s(p, Operation::AllGather, weights, static_cast<double>(s.gather_bytes) * parameters);
  };
  const auto reduce = [&](double parameters) {
    return shard_s(p, Operation::ReduceScatter, states, gradient_bytes(p, s) * parameters);
  };
  const double forward_s = costs.layer.forward.total();
  const double backward_s =
      costs.layer.recompute.total() + costs.layer.backward_input.total() + costs.layer.backward_weight.total();
  const auto sticks_out = [](double transfer_s, double compute_s, bool overlapped, double contention) {
    return overlapped ? beside(transfer_s, compute_s, contention) : transfer_s;
  };
  const double of_weights = p.collectives.contention(weights);
  const double of_states = std::max(of_weights, p.collectives.contention(states));
  const double own = gather(each.layer);
  costs.shard_layer.forward_s = sticks_out(own, forward_s, s.overlap_param_gather, of_weights);
  const double again = s.keep == parallel::KeepGathered::Forward ? own : 0;
  const double sum = reduce(each.layer);
  const double hidden = (s.overlap_param_gather ? again : 0) + (s.overlap_grad_reduce ? sum : 0);
  costs.shard_layer.backward_s = beside(hidden, backward_s, of_states) + again + sum - hidden;
  // The embedding's backward needs no weights, the head's are there from its forward.
  costs.shard_head.forward_s = sticks_out(gather(word), forward_s, s.overlap_param_gather, of_weights);
  costs.shard_head.backward_s = sticks_out(reduce(word), backward_s, s.overlap_grad_reduce, of_states);
  // From one micro-batch to the next: beside the pass of the layer that came before or comes after.
  const bool on = p.software.shards_across_passes;
  costs.shard_embedding.forward_s =
      sticks_out(gather(each.embedding), backward_s, on && s.overlap_param_gather, of_weights);
  costs.shard_embedding.backward_s =
      sticks_out(reduce(each.embedding), forward_s, on && s.overlap_grad_reduce, of_states);
  costs.shard_edge.forward_s = own - costs.shard_layer.forward_s;
  if (s.overlap_grad_reduce) {
    const double without = s.overlap_param_gather ? beside(again, backward_s, of_states) : 0;
    costs.shard_edge.backward_s = sum - (beside(hidden, backward_s, of_states) - without);
  }
}

/// One micro-batch on one position.
struct PositionTime {
  double compute = 0, recompute = 0, tensor = 0, gather = 0, host = 0;
  double forward = 0, weight = 0;  ///< F and W of the total
  double total() const { return compute + recompute + tensor + gather + host; }
};

PositionTime position_time(const Pricing& p, const StepShape& s, const LayerCosts& c, int position) {
  const auto layers = static_cast<double>(layers_of_position(s, position));
  const double again = s.recompute == parallel::RecomputeGranularity::Full
                           ? std::min(layers, static_cast<double>(s.recomputed_layers) * s.chunks)
                           : layers;
  PositionTime t;
  double host = p.software.micro_batch_s.value + layers * (c.layer.host_forward_s + c.layer.host_backward_s) +
                (s.recompute == parallel::RecomputeGranularity::Full ? again * c.layer.host_forward_s : 0);
  const auto add = [&](const PassTimes& pass, double times) {
    const OpParts* const parts[] = {&pass.forward, &pass.backward_input, &pass.backward_weight};
    for (const OpParts* part : parts) {
      t.compute += times * (part->total() - part->tensor_s);
      t.tensor += times * part->tensor_s;
    }
    t.forward += times * pass.forward.total();
    t.weight += times * pass.backward_weight.total();
  };
  add(c.layer, layers);
  t.recompute = again * c.layer.recompute.total();
  const LayerCosts::Unit shards = shard_times(p, s, c, layers, position, s.pipeline);
  t.gather = shards.forward_s + shards.backward_s;
  t.forward += shards.forward_s;
  if (position == 0) add(c.embedding, 1);
  if (position == s.pipeline - 1) add(c.head, 1);
  if (p.software.accumulate_bytes.value > 0 && s.zero < 2) {
    const auto m = static_cast<double>(s.num_micro_batches);
    const ShapeParameters each = parameters_of(s);
    const double own = layers * each.layer + (position == 0 ? each.embedding : 0);
    const double sum = (m - 1) / m * p.device.bytes_s(p.software.accumulate_bytes.value * own);
    t.compute += sum;
    t.weight += sum;
  }
  const double device = t.total();
  const double both = with_host(p.software, device, host);
  if (both > device) {
    t.host = both - device;
    t.forward *= both / device;
    t.weight *= both / device;
  }
  return t;
}

double bubble(const StepShape& s, const PositionTime& first, const PositionTime& inner, const PositionTime& last,
              const PositionTime& slowest) {
  const double p = s.pipeline;
  if (s.pipeline == 1) return 0;
  const double others = first.total() + last.total() + (p - 2) * inner.total() - slowest.total();
  // Whatever weight gradients fill: the stage of the loss takes one micro-batch after the other, and the last one still
  // goes back through all. Few micro-batches are bound by that.
  const auto m = static_cast<double>(s.num_micro_batches);
  const auto once = [](const PositionTime& t) { return t.total() - t.weight; };
  const double through = (m - 1) * once(last) / s.chunks + once(first) + once(last) + (p - 2) * once(inner) +
                         first.weight / s.chunks - m * slowest.total();
  switch (s.schedule) {
    case ScheduleKind::Interleaved:
      return others / s.chunks;
    case ScheduleKind::ZeroBubbleH1:
      return std::max({0.0, through, others - 2 * (p - 1) * inner.weight});
    case ScheduleKind::ZeroBubbleH2:
      return std::max({0.0, through, others - 3 * (p - 1) * inner.weight});
    case ScheduleKind::ZeroBubbleV:
      return std::max(0.0, through);
    default:
      return others;
  }
}

double messages(const Software& software, const StepShape& s, double c) {
  const double p = s.pipeline;
  const auto m = static_cast<double>(s.num_micro_batches);
  if (s.pipeline == 1) return 0;
  switch (s.schedule) {
    case ScheduleKind::OneFOneB:
      return 2 * c * ((p - 1) * m / p + (p - 2));
    case ScheduleKind::Interleaved:
      return 2 * c * (s.chunks * p - 1) + (s.overlap_p2p ? 0 : software.awaited_messages * c * s.chunks * m);
    case ScheduleKind::ZeroBubbleV:
      return 2 * c * (s.chunks * p - 1);
    default:
      return 2 * c * (p - 1);
  }
}

}  // namespace

double with_host(const Software& software, double device_s, double host_s) {
  if (host_s <= 0 || device_s <= 0) return std::max(device_s, host_s);
  const double n = software.host_norm.value;
  if (n <= 0) return std::max(device_s, host_s);
  const double longer = std::max(device_s, host_s);
  return longer * std::pow(1 + std::pow(std::min(device_s, host_s) / longer, n), 1 / n);
}

LayerCosts::Unit shard_times(const Pricing& p, const StepShape& s, const LayerCosts& c, double layers, int stage,
                             int stages) {
  if (s.zero < 2 || s.data <= 1) return {};
  const auto m = static_cast<double>(s.num_micro_batches);
  // Edges of a step, or of every pass of a micro-batch; chunks of a position share them.
  const double edge = s.pipeline / static_cast<double>(stages) / (p.software.shards_across_passes ? m : 1);
  LayerCosts::Unit t;
  t.forward_s = layers * c.shard_layer.forward_s + edge * c.shard_edge.forward_s;
  t.backward_s = layers * c.shard_layer.backward_s + edge * c.shard_edge.backward_s;
  if (stage == 0) {
    t.forward_s += c.shard_embedding.forward_s;
    t.backward_s += c.shard_embedding.backward_s;
  }
  if (stage == stages - 1) {
    t.forward_s += c.shard_head.forward_s;
    // On one position the gradients of a tied head are the embedding's.
    if (!s.tied || s.pipeline > 1) t.backward_s += c.shard_head.backward_s;
  }
  if (s.keep == parallel::KeepGathered::Step) t.forward_s /= m;
  return t;
}

LayerCosts layer_costs(const Pricing& p, const StepShape& s) {
  LayerCosts costs{layer_times(p, s), embedding_times(p, s), head_times(p, s), {}, {}, {}, {}};
  add_sharding(p, s, costs);
  return costs;
}

double message_time(const Pricing& p, const StepShape& s) {
  const double bytes = p.device.element_bytes() * static_cast<double>(s.tokens()) * static_cast<double>(s.hidden);
  const int stride = s.order == comm::RankOrder::TpCpDpPp ? s.tensor * s.data : s.tensor;
  const bool across = stride * s.pipeline > p.devices_per_node;
  const int senders = std::min(p.devices_per_node, s.ranks());
  const bool sliced = s.scatter_gather || s.sequence_parallel;
  double time = p.software.message_s.value + p.collectives.message_s(across, bytes / (sliced ? s.tensor : 1), senders);
  if (s.scatter_gather) time += p.collectives.time_s(Operation::AllGather, tensor_place(p, s), bytes);
  return time;
}

double reduce_time(const Pricing& p, const StepShape& s, double parameters) {
  if (s.data <= 1) return 0;
  const double bytes = parameters * gradient_bytes(p, s);
  if (s.zero == 0) return p.collectives.time_s(Operation::AllReduce, data_place(p, s), bytes);
  const GroupPlace group = state_place(p, s);
  const int replicas = s.data / std::max(1, group.ranks);
  const double scatter = s.zero == 1 ? p.collectives.time_s(Operation::ReduceScatter, group, bytes) : 0;
  if (replicas <= 1) return scatter;
  const GroupPlace across = replica_place(p, s, group.ranks);
  return scatter + p.collectives.time_s(Operation::AllReduce, across, bytes / group.ranks);
}

double gather_time(const Pricing& p, const StepShape& s, double parameters) {
  if (s.zero < 1 || s.data <= 1) return 0;
  const GroupPlace group = shard_place(p, s);
  if (s.zero < 3) {
    return p.collectives.time_s(Operation::AllGather, group, parameters * static_cast<double>(s.gather_bytes));
  }
  if (s.states == parallel::StateSharding::ShardGroup) return 0;
  const GroupPlace across = replica_place(p, s, group.ranks);
  return p.collectives.time_s(Operation::AllGather, across,
                              parameters * static_cast<double>(s.element_bytes) / group.ranks);
}

double optimizer_time(const Pricing& p, const StepShape& s, double parameters) {
  const double owned = s.zero >= 1 ? parameters / std::max(1, state_place(p, s).ranks) : parameters;
  const char* const update = s.optimizer == io::OptimizerKind::Adam ? "adamw" : "sgd";
  if (p.device.has_kernel(update)) {
    // Gradients of matrices are not zeroed: the first product of a step overwrites them, or the first bucket does.
    return p.device.kernel_s(update, 1, owned) + p.device.kernel_s("sum_of_squares", 1, owned);
  }
  const double bytes = p.software.optimizer_bytes.value > 0 ? p.software.optimizer_bytes.value : s.optimizer_bytes;
  return owned * bytes / p.device.optimizer_bytes_per_s + p.device.kernel_floor_s;
}

double tied_time(const Pricing& p, const StepShape& s) {
  if (!s.tied || s.pipeline <= 1) return 0;
  const int stride = (s.order == comm::RankOrder::TpCpDpPp ? s.tensor * s.data : s.tensor) * (s.pipeline - 1);
  const double bytes = static_cast<double>(s.vocab) * static_cast<double>(s.hidden) / s.tensor * gradient_bytes(p, s);
  const bool across = stride >= p.devices_per_node;
  return p.collectives.time_s(Operation::AllReduce, {2, across ? 2 : 1, std::min(p.devices_per_node, s.ranks())},
                              bytes);
}

StepTime step_time(const Pricing& p, const StepShape& s, const LayerCosts& costs) {
  const int last_position = s.pipeline - 1;
  const PositionTime first = position_time(p, s, costs, 0);
  const PositionTime last = last_position > 0 ? position_time(p, s, costs, last_position) : first;
  const PositionTime inner = s.pipeline > 2 ? position_time(p, s, costs, 1) : first;
  const PositionTime* slowest = &first;
  for (const PositionTime* t : {&inner, &last}) {
    if (t->total() > slowest->total()) slowest = t;
  }
  const auto m = static_cast<double>(s.num_micro_batches);
  StepTime step;
  step.compute_s = m * slowest->compute;
  step.recompute_s = m * slowest->recompute;
  step.tensor_s = m * slowest->tensor;
  step.gather_s = m * slowest->gather;
  step.host_s = m * slowest->host + p.software.step_s.value;
  step.bubble_s = bubble(s, first, inner, last, *slowest);
  step.message_s = s.pipeline > 1 ? messages(p.software, s, message_time(p, s)) : 0;

  const ShapeParameters each = parameters_of(s);
  double parameters = each.layer * static_cast<double>(layers_of_position(s, 0)) + each.embedding;
  if (s.pipeline == 1) parameters += each.head;
  const double reduce = reduce_time(p, s, parameters);
  if (s.zero >= 2 || !s.overlap_grad_reduce) {
    step.data_s = reduce;
  } else {
    // The first bucket is full only after a part of the backward; the last one has nothing beside it.
    const double backward =
        (first.total() - first.forward) * (1 - 1.0 / static_cast<double>(std::max<int64_t>(2, s.layers / s.pipeline)));
    step.data_s = beside(reduce, backward / s.chunks, p.collectives.contention(data_place(p, s)));
  }
  const double gather = gather_time(p, s, parameters);
  const double hidden = p.software.gathers_by_unit && s.overlap_param_gather ? std::min(gather, first.forward) : 0;
  step.data_s += (gather - hidden) / (s.overlap_param_gather ? s.chunks : 1);
  step.optimizer_s = optimizer_time(p, s, parameters) + tied_time(p, s);
  step.step_s = step.compute_s + step.recompute_s + step.tensor_s + step.gather_s + step.host_s + step.bubble_s +
                step.message_s + step.data_s + step.optimizer_s;
  return step;
}

StepTime step_time(const Pricing& pricing, const StepShape& shape) {
  return step_time(pricing, shape, layer_costs(pricing, shape));
}

}  // namespace triax::plan

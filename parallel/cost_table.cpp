#include "parallel/cost_table.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace triax::parallel {
namespace {

template <class T>
T entry(const std::vector<T>& list, int index) {
  if (list.empty()) return T{};
  return list[list.size() == 1 ? 0 : static_cast<size_t>(index)];
}

template <class T>
void check_length(const char* name, const std::vector<T>& list, int pipeline) {
  if (list.size() <= 1 || list.size() == static_cast<size_t>(pipeline)) return;
  throw ConfigError(fmt::format("--cost {}: {} values for {} pipeline stages; give one value, or {} (one per stage)",
                                name, list.size(), pipeline, pipeline));
}

// Chunk `chunk` of `chunks` of a stage that costs `whole`.
int64_t share(int64_t whole, int chunk, int chunks) { return whole * (chunk + 1) / chunks - whole * chunk / chunks; }

void check_lengths(const UniformCosts& c, int p) {
  check_length("F", c.forward_ps, p);
  check_length("I", c.backward_input_ps, p);
  check_length("W", c.backward_weight_ps, p);
  check_length("R", c.recompute_ps, p);
  check_length("OPT", c.optimizer_ps, p);
  check_length("REDUCE_GRAD", c.reduce_ps, p);
  check_length("LOAD", c.load_ps, p);
  check_length("SUM_TP", c.tensor_partial_ps, p);
  check_length("P2P", c.latency_ps, p);
  check_length("bandwidth", c.bytes_per_s, p);
}

// Hops from `from` to `to`: over the ring's edge only where that is one hop, else along the line.
LinkCost path(const UniformCosts& c, int from, int to, int p) {
  int low = std::min(from, to);
  int high = std::max(from, to);
  if (low == 0 && high == p - 1 && p > 2) {
    low = p - 1;
    high = p;
  }
  LinkCost link;
  double s_per_byte = 0;
  for (int hop = low; hop < high; ++hop) {
    link.latency_ps += entry(c.latency_ps, hop);
    const double bandwidth = entry(c.bytes_per_s, hop);
    if (bandwidth > 0) s_per_byte += 1 / bandwidth;
  }
  if (s_per_byte > 0) link.bytes_per_s = 1 / s_per_byte;
  return link;
}

}  // namespace

int64_t LinkCost::time_ps(int64_t bytes) const {
  if (bytes_per_s <= 0) return latency_ps;
  return latency_ps + std::llround(static_cast<double>(bytes) / bytes_per_s * 1e12);
}

CostKey cost_key(const Program& program, int position, const Op& op) {
  CostKey key{op.kind, position};
  if (is_compute(op.kind)) key.chunk = op.chunk;
  if (op.kind == OpKind::ReduceGradients || op.kind == OpKind::GatherParameters) key.bucket = op.bucket;
  if (is_send(op.kind) || is_receive(op.kind)) key.peer = (position + op.peer_offset) % program.pipeline;
  return key;
}

std::string text_of(const CostKey& key) {
  std::string text = fmt::format("{}/{}", name_of(key.kind), key.position);
  if (key.peer >= 0) text += fmt::format("{}{}", is_send(key.kind) ? '>' : '<', key.peer);
  if (key.chunk >= 0) text += fmt::format("/{}", key.chunk);
  if (key.bucket >= 0) text += fmt::format("/b{}", key.bucket);
  return text;
}

int64_t cost_of(const CostTable& table, const CostKey& key) {
  const auto stage = [&]() -> const StageCost& { return table.stage(key.position, key.chunk); };
  const auto position = [&]() -> const PositionCost& { return table.positions[static_cast<size_t>(key.position)]; };
  switch (key.kind) {
    case OpKind::Forward:
      return stage().forward_ps;
    case OpKind::Backward:
      return stage().backward_input_ps + stage().backward_weight_ps;
    case OpKind::BackwardInput:
      return stage().backward_input_ps;
    case OpKind::BackwardWeight:
      return stage().backward_weight_ps;
    case OpKind::Recompute:
      return stage().recompute_ps;
    case OpKind::LoadBatch:
      return position().load_ps;
    case OpKind::SumTensorPartial:
      return position().tensor_partial_ps;
    case OpKind::OptimizerStep:
      return position().optimizer_ps;
    case OpKind::ReduceGradients:
      return entry(position().reduce_ps, key.bucket);
    case OpKind::GatherActivation:
    case OpKind::GatherGradient:
      return position().message_gather_ps;
    case OpKind::GatherParameters:
      return entry(position().gather_ps, key.bucket);
    case OpKind::SumTied:
      return table.tied_ps;
    case OpKind::GradientNorm:
      return table.norm_ps;
    case OpKind::SendActivation:
    case OpKind::SendGradient:
      return table.link(key.position, key.peer).time_ps(table.message_bytes);
    case OpKind::RecvActivation:
    case OpKind::RecvGradient:
      return 0;
  }
  return 0;
}

CostTable make_cost_table(const UniformCosts& c, int pipeline, int chunks) {
  check_lengths(c, pipeline);
  CostTable table;
  table.pipeline = pipeline;
  table.chunks = chunks;
  table.message_bytes = c.message_bytes;
  table.tied_ps = c.tied_ps;
  table.norm_ps = c.norm_ps;
  for (int i = 0; i < pipeline; ++i) {
    for (int k = 0; k < chunks; ++k) {
      table.stages.push_back({share(entry(c.forward_ps, i), k, chunks), share(entry(c.backward_input_ps, i), k, chunks),
                              share(entry(c.backward_weight_ps, i), k, chunks),
                              share(entry(c.recompute_ps, i), k, chunks)});
    }
    table.positions.push_back({entry(c.load_ps, i),
                               entry(c.tensor_partial_ps, i),
                               entry(c.optimizer_ps, i),
                               {entry(c.reduce_ps, i)},
                               {entry(c.gather_ps, i)},
                               entry(c.message_gather_ps, i)});
  }
  if (c.latency_ps.size() <= 1 && c.bytes_per_s.size() <= 1) {
    table.links = {{entry(c.latency_ps, 0), entry(c.bytes_per_s, 0)}};
    return table;
  }
  for (int from = 0; from < pipeline; ++from) {
    for (int to = 0; to < pipeline; ++to) table.links.push_back(path(c, from, to, pipeline));
  }
  return table;
}

}  // namespace triax::parallel

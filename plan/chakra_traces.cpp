#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <unordered_map>

#include "base/error.h"
#include "comm/process_grid.h"
#include "io/options/validate.h"
#include "io/report/run_directory.h"
#include "plan/rank_traces.h"
#include "train/program_builder.h"

namespace triax::plan {
namespace {

using comm::Axis;
using io::ChakraCollective;
using io::ChakraNode;
using io::ChakraType;
using parallel::Op;
using parallel::OpKind;

/// ASTRA-sim reads names of groups as numbers: 1 + axis x ranks + first rank of the group; axis 0 tp, 1 dp, 2 pp.
std::string group_name(const comm::GridShape& grid, int rank, Axis axis) {
  const int number = axis == Axis::Tensor ? 0 : axis == Axis::Data ? 1 : 2;
  return std::to_string(1 + number * grid.world() + comm::group_of(grid, rank, axis).front());
}

/// What all ranks of a position share.
class PositionNodes {
 public:
  PositionNodes(const SimulatedStep& step, const io::RunOptions& options, int position)
      : step_(step),
        options_(options),
        position_(position),
        ops_(step.program.positions[static_cast<size_t>(position)]),
        inside_(parallel::unit_ops(step.program, position)),
        plan_(train::shard_plan_of(options, position)) {
    state_bytes_ = static_cast<int64_t>(size_of(io::state_dtype(options.control.precision)));
    element_bytes_ = static_cast<int64_t>(size_of(io::compute_dtype(options.control.precision)));
    hidden_bytes_ =
        options.batch.micro_batch_size * options.model.seq_length * options.model.hidden_size * element_bytes_;
  }

  std::vector<ChakraNode> of(int rank) {
    nodes_.clear();
    last_ = reduced_ = 0;
    gathered_.clear();
    rank_ = rank;
    for (size_t k = 0; k < ops_.size(); ++k) add(ops_[k], k);
    return std::move(nodes_);
  }

 private:
  const comm::GridShape& grid() const { return options_.parallel.grid; }

  ChakraNode& put(ChakraType type, std::string name, std::vector<uint64_t> depends) {
    ChakraNode node;
    node.id = nodes_.size() + 1;
    node.type = type;
    node.name = std::move(name);
    std::erase(depends, uint64_t{0});
    std::sort(depends.begin(), depends.end());
    depends.erase(std::unique(depends.begin(), depends.end()), depends.end());
    node.depends = std::move(depends);
    nodes_.push_back(std::move(node));
    return nodes_.back();
  }

  /// In the lane: after what came before, before what comes next.
  void collective(const std::string& name, Axis axis, ChakraCollective kind, int64_t bytes) {
    if (bytes <= 0 || grid().size_of(axis) == 1) return;
    ChakraNode& node = put(ChakraType::Collective, name, {last_});
    node.collective = kind;
    node.bytes = bytes;
    node.group = group_name(grid(), rank_, axis);
    last_ = node.id;
  }

  void add(const Op& op, size_t k) {
    const std::string name = parallel_text(op);
    const auto& times = step_.simulation.times[static_cast<size_t>(position_)][k];
    if (is_compute(op.kind)) return compute(op, k, name);
    if (is_send(op.kind) || is_receive(op.kind)) return message(op, name);
    if (beside_compute(op)) return beside(op, name);
    const int64_t partial = options_.model.hidden_size * state_bytes_;
    switch (op.kind) {
      case OpKind::SumTensorPartial:
        return collective(name, Axis::Tensor, ChakraCollective::AllReduce, partial);
      case OpKind::GatherActivation:
      case OpKind::GatherGradient:
        return collective(name, Axis::Tensor, ChakraCollective::AllGather, hidden_bytes_);
      case OpKind::ReduceGradients:
      case OpKind::GatherParameters:
        return collective(name, Axis::Data, kind_of(op), block_bytes(op));
      case OpKind::SumTied:
        return tied(name);
      case OpKind::GradientNorm: {
        last_ = put(ChakraType::Compute, name, {last_, reduced_}).id;
        return collective(name + " sum", Axis::Pipeline, ChakraCollective::AllReduce, state_bytes_);
      }
      default: {
        ChakraNode& node = put(ChakraType::Compute, name, {last_});
        node.duration_us = microseconds(times.stop_ps - times.start_ps);
        last_ = node.id;
      }
    }
  }

  std::string parallel_text(const Op& op) const {
    return fmt::format("{}.{}.{}", name_of(op.kind), op.chunk, op.micro_batch);
  }
  static uint64_t microseconds(int64_t ps) { return static_cast<uint64_t>((ps + 500'000) / 1'000'000); }

  ChakraCollective kind_of(const Op& op) const {
    if (op.kind == OpKind::GatherParameters) return ChakraCollective::AllGather;
    return plan_.options.stage == 0 ? ChakraCollective::AllReduce : ChakraCollective::ReduceScatter;
  }
  int64_t block_bytes(const Op& op) const {
    const int64_t width = op.kind == OpKind::GatherParameters ? element_bytes_ : state_bytes_;
    return plan_.blocks[static_cast<size_t>(op.bucket)].range.size() * width;
  }

  void beside(const Op& op, const std::string& name) {
    if (grid().data == 1) return;
    ChakraNode& node = put(ChakraType::Collective, name, {last_, reduced_});
    node.collective = kind_of(op);
    node.bytes = block_bytes(op);
    node.group = group_name(grid(), rank_, Axis::Data);
    reduced_ = node.id;
    if (op.kind == OpKind::GatherParameters) gathered_[op.chunk] = node.id;
  }

  /// First and last stage exchange their gradients of the word embedding.
  void tied(const std::string& name) {
    comm::GridCoord coord = comm::coord_of(grid(), rank_);
    const bool first = coord.pipeline == 0;
    coord.pipeline = first ? grid().pipeline - 1 : 0;
    const int peer = comm::rank_of(grid(), coord);
    const int64_t bytes =
        options_.model.padded_vocab_size(grid().tensor) / grid().tensor * options_.model.hidden_size * state_bytes_;
    const uint64_t before = std::max(last_, reduced_);
    for (const ChakraType type : {ChakraType::Send, ChakraType::Receive}) {
      ChakraNode& node = put(type, name, {last_, before});
      node.peer = peer;
      node.bytes = bytes;
      node.tag = kTiedTag + ((type == ChakraType::Send) == first ? 0 : 1);
    }
    last_ = nodes_.back().id;
  }

  void message(const Op& op, const std::string& name) {
    comm::GridCoord coord = comm::coord_of(grid(), rank_);
    coord.pipeline = (coord.pipeline + op.peer_offset) % grid().pipeline;
    ChakraNode& node = put(is_send(op.kind) ? ChakraType::Send : ChakraType::Receive, name, {last_});
    node.peer = comm::rank_of(grid(), coord);
    node.bytes = step_.table.message_bytes;
    node.tag = static_cast<int32_t>(op.match);
    if (is_receive(op.kind)) last_ = node.id;
  }

  void compute(const Op& op, size_t k, const std::string& name) {
    int64_t gathers = 0, reduces = 0;
    for (const parallel::UnitOp& unit : inside_[k]) {
      if (unit.block < 0) continue;
      const int64_t elements = plan_.blocks[static_cast<size_t>(unit.block)].range.size();
      if (unit.kind == parallel::UnitOpKind::Gather) gathers += elements * element_bytes_;
      if (unit.kind == parallel::UnitOpKind::Reduce && plan_.options.shards_gradients())
        reduces += elements * state_bytes_;
    }
    collective(name + " gather", Axis::Data, ChakraCollective::AllGather, gathers);
    const auto& time = step_.simulation.times[static_cast<size_t>(position_)][k];
    ChakraNode& node = put(ChakraType::Compute, name, {last_, is_forward(op.kind) ? gathered_[op.chunk] : 0});
    node.duration_us = microseconds(std::llround(static_cast<double>(time.stop_ps - time.start_ps) * computing(op)));
    node.num_ops = static_cast<uint64_t>(flops(op));
    node.bytes = hidden_bytes_;
    last_ = node.id;
    const int64_t layers = step_.program.layers.layers(position_, op.chunk).size();
    const int64_t sums = 2 * layers * ((is_forward(op.kind) ? 1 : 0) + (is_backward_input(op.kind) ? 1 : 0));
    if (options_.parallel.sequence_parallel) {
      collective(name + " tp", Axis::Tensor, ChakraCollective::AllGather, sums * hidden_bytes_);
      collective(name + " tp", Axis::Tensor, ChakraCollective::ReduceScatter, sums * hidden_bytes_);
    } else {
      collective(name + " tp", Axis::Tensor, ChakraCollective::AllReduce, sums * hidden_bytes_);
    }
    collective(name + " reduce", Axis::Data, ChakraCollective::ReduceScatter, reduces);
  }

  /// Share of an op's time that is no communication.
  double computing(const Op& op) const {
    const StageParts& s = step_.parts[static_cast<size_t>(position_ * step_.program.chunks + op.chunk)];
    double all = 0, comm = 0;
    const auto add_pass = [&](bool runs, const OpParts& p) {
      if (!runs) return;
      all += p.total();
      comm += p.tensor_s + p.gather_s;
    };
    add_pass(is_forward(op.kind), s.forward);
    add_pass(is_backward_input(op.kind), s.backward_input);
    add_pass(is_backward_input(op.kind) || op.kind == OpKind::Recompute, s.recompute);
    add_pass(is_backward_weight(op.kind), s.backward_weight);
    return all > 0 ? 1 - comm / all : 1;
  }

  /// Of one rank: layers and head of the chunk, forward once, input and weight gradients once each.
  double flops(const Op& op) const {
    const int stage = step_.program.layers.virtual_stage(position_, op.chunk);
    model::ModelConfig chunk = options_.model;
    chunk.num_layers = step_.program.layers.layers(position_, op.chunk).size();
    const bool head = stage == step_.program.layers.num_virtual_stages() - 1;
    const int64_t vocab = head ? options_.model.padded_vocab_size(grid().tensor) : 0;
    const double pass =
        model::step_flops(chunk, options_.batch.micro_batch_size, vocab, model::AttentionCount::CausalHalf).model / 3 /
        grid().tensor;
    const bool again =
        is_backward_input(op.kind) && options_.parallel.recompute.granularity == parallel::RecomputeGranularity::Full;
    return pass * ((is_forward(op.kind) ? 1 : 0) + (is_backward_input(op.kind) ? 1 : 0) +
                   (is_backward_weight(op.kind) ? 1 : 0) + (again ? 1 : 0));
  }

  static constexpr int32_t kTiedTag = 1 << 30;
  const SimulatedStep& step_;
  const io::RunOptions& options_;
  int position_;
  const std::vector<Op>& ops_;
  std::vector<std::vector<parallel::UnitOp>> inside_;
  parallel::ShardPlan plan_;
  int64_t state_bytes_ = 4, element_bytes_ = 2, hidden_bytes_ = 0;
  std::vector<ChakraNode> nodes_;
  std::unordered_map<int, uint64_t> gathered_;
  uint64_t last_ = 0, reduced_ = 0;
  int rank_ = 0;
};

}  // namespace

std::vector<ChakraNode> chakra_nodes(const SimulatedStep& step, const io::RunOptions& options, int rank) {
  return PositionNodes(step, options, comm::coord_of(options.parallel.grid, rank).pipeline).of(rank);
}

int write_chakra(const Prediction& prediction, const io::RunOptions& options, const std::string& directory) {
  const comm::GridShape& grid = options.parallel.grid;
  if (grid.world() > kMostChakraRanks) {
    throw ConfigError(fmt::format("--chakra: {} ranks, one file each; at most {}: use fewer replicas", grid.world(),
                                  kMostChakraRanks));
  }
  std::filesystem::create_directories(directory);
  std::map<std::string, std::vector<int>> groups;
  for (int position = 0; position < grid.pipeline; ++position) {
    PositionNodes nodes(*prediction.simulated, options, position);
    comm::GridCoord coord;
    coord.pipeline = position;
    for (coord.data = 0; coord.data < grid.data; ++coord.data) {
      for (coord.tensor = 0; coord.tensor < grid.tensor; ++coord.tensor) {
        const int rank = comm::rank_of(grid, coord);
        for (const Axis axis : {Axis::Tensor, Axis::Data, Axis::Pipeline}) {
          if (grid.size_of(axis) > 1) groups[group_name(grid, rank, axis)] = comm::group_of(grid, rank, axis);
        }
        io::write_text_file(fmt::format("{}/triax.{}.et", directory, rank), io::chakra_trace(rank, nodes.of(rank)));
      }
    }
  }
  io::write_text_file(directory + "/comm_group.json", io::chakra_groups(groups));
  return grid.world();
}

}  // namespace triax::plan

#include "parallel/program_passes.h"

#include <algorithm>
#include <deque>
#include <map>

#include "parallel/schedule.h"

namespace triax::parallel {
namespace {

enum class Direction { Forward, Backward };

int64_t match_of(int receiver_virtual_stage, Direction direction, int m, int micro_batch) {
  return (int64_t{2} * receiver_virtual_stage + (direction == Direction::Forward ? 0 : 1)) * m + micro_batch;
}

Op message(OpKind kind, const Op& compute, int peer_offset, int64_t match) {
  Op op;
  op.kind = kind;
  op.chunk = compute.chunk;
  op.micro_batch = compute.micro_batch;
  op.stream = Stream::Pipeline;
  op.peer_offset = peer_offset;
  op.match = match;
  return op;
}

Op plain(OpKind kind, int chunk, Stream stream, int bucket = -1) {
  Op op;
  op.kind = kind;
  op.chunk = chunk;
  op.stream = stream;
  op.bucket = bucket;
  return op;
}

}  // namespace

std::vector<Op> insert_loads(const std::vector<Op>& ops) {
  std::vector<Op> out;
  for (const Op& op : ops) {
    if (is_forward(op.kind)) {
      Op load = plain(OpKind::LoadBatch, op.chunk, Stream::Host);
      load.micro_batch = op.micro_batch;
      out.push_back(load);
    }
    out.push_back(op);
  }
  return out;
}

std::vector<Op> split_backward(const std::vector<Op>& ops, int lag) {
  std::vector<Op> out;
  std::map<int, std::deque<Op>> waiting;  // per chunk, oldest first
  for (const Op& op : ops) {
    out.push_back(op);
    if (op.kind != OpKind::Backward) continue;
    out.back().kind = OpKind::BackwardInput;
    std::deque<Op>& weights = waiting[op.chunk];
    weights.push_back(op);
    weights.back().kind = OpKind::BackwardWeight;
    if (static_cast<int>(weights.size()) > lag) {
      out.push_back(weights.front());
      weights.pop_front();
    }
  }
  for (const auto& [chunk, weights] : waiting) out.insert(out.end(), weights.begin(), weights.end());
  return out;
}

std::vector<Op> insert_recompute(const std::vector<Op>& ops) {
  std::vector<Op> out;
  for (const Op& op : ops) {
    if (is_backward_input(op.kind)) {
      out.push_back(op);
      out.back().kind = OpKind::Recompute;
    }
    out.push_back(op);
  }
  return out;
}

std::vector<Op> insert_messages(const std::vector<Op>& ops, const LayerMap& layers, int position, int m) {
  const int p = layers.pipeline;
  // Offset to the position of virtual stage `stage`; 0: it is here, or there is no such stage, so nothing travels.
  const auto offset_to = [&](int stage) {
    if (stage < 0 || stage >= layers.num_virtual_stages()) return 0;
    return (layers.position_of(stage) - position + p) % p;
  };
  std::vector<Op> out;
  out.reserve(3 * ops.size());
  for (const Op& op : ops) {
    const bool forward = is_forward(op.kind);
    if (!forward && !is_backward_input(op.kind)) {
      out.push_back(op);
      continue;
    }
    const int stage = layers.virtual_stage(position, op.chunk);
    const int sender = forward ? stage - 1 : stage + 1;
    const int receiver = forward ? stage + 1 : stage - 1;
    const Direction direction = forward ? Direction::Forward : Direction::Backward;
    if (const int offset = offset_to(sender); offset != 0) {
      out.push_back(message(forward ? OpKind::RecvActivation : OpKind::RecvGradient, op, offset,
                            match_of(stage, direction, m, op.micro_batch)));
    }
    out.push_back(op);
    if (const int offset = offset_to(receiver); offset != 0) {
      out.push_back(message(forward ? OpKind::SendActivation : OpKind::SendGradient, op, offset,
                            match_of(receiver, direction, m, op.micro_batch)));
    }
  }
  return out;
}

std::vector<Op> insert_message_gathers(const std::vector<Op>& ops) {
  std::vector<Op> out;
  for (const Op& op : ops) {
    out.push_back(op);
    if (!is_receive(op.kind)) continue;
    const OpKind kind = op.kind == OpKind::RecvActivation ? OpKind::GatherActivation : OpKind::GatherGradient;
    out.push_back(plain(kind, op.chunk, Stream::Tensor));
    out.back().micro_batch = op.micro_batch;
  }
  return out;
}

std::vector<Op> append_gradient_sums(const std::vector<Op>& ops, int chunks, const GradientSums& sums) {
  std::vector<size_t> last(static_cast<size_t>(chunks), 0);
  for (size_t i = 0; i < ops.size(); ++i) {
    if (is_backward_weight(ops[i].kind)) last[static_cast<size_t>(ops[i].chunk)] = i;
  }
  std::vector<Op> out;
  for (size_t i = 0; i < ops.size(); ++i) {
    out.push_back(ops[i]);
    const int chunk = ops[i].chunk;
    if (!is_backward_weight(ops[i].kind) || last[static_cast<size_t>(chunk)] != i) continue;
    for (size_t b = 0; b < sums.bucket_chunk.size(); ++b) {
      if (sums.bucket_chunk[b] != chunk) continue;
      out.push_back(plain(OpKind::ReduceGradients, chunk, Stream::Data, static_cast<int>(b)));
    }
  }
  // Sums commute: those over tp and over the copies of the embedding take what is left to this rank by the ones over
  // dp. A tied sum in the middle of the pass could wait for a partner that waits for our messages.
  for (int chunk = 0; sums.tensor_partial && chunk < chunks; ++chunk) {
    out.push_back(plain(OpKind::SumTensorPartial, chunk, Stream::Tensor));
  }
  if (sums.tied) out.push_back(plain(OpKind::SumTied, sums.tied_chunk, Stream::Pipeline));
  return out;
}

std::vector<Op> insert_gathers(std::vector<Op> ops, std::vector<GatheredBlock> blocks, GatherTime time) {
  const Stream stream = time == GatherTime::AtStart ? Stream::Data : Stream::Compute;
  // Blocks are listed in backward order: the last ones of a chunk are used first.
  std::reverse(blocks.begin(), blocks.end());
  std::stable_sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) { return a.chunk < b.chunk; });
  std::vector<Op> gathers;
  for (const GatheredBlock& b : blocks) gathers.push_back(plain(OpKind::GatherParameters, b.chunk, stream, b.block));
  ops.insert(time == GatherTime::AtStart ? ops.begin() : ops.end(), gathers.begin(), gathers.end());
  return ops;
}

std::vector<Op> append_optimizer(std::vector<Op> ops) {
  ops.push_back(plain(OpKind::GradientNorm, 0, Stream::Compute));
  ops.push_back(plain(OpKind::OptimizerStep, 0, Stream::Compute));
  return ops;
}

Program make_training_program(const ProgramOptions& options) {
  const ScheduleOptions& s = options.schedule;
  const LayerMap& layers = options.layers;
  Program program{name_of(s.kind), s.pipeline, s.chunks, s.num_micro_batches, layers, {}, {}, {}};
  const int last = layers.num_virtual_stages() - 1;
  for (int i = 0; i < s.pipeline; ++i) {
    GradientSums sums;
    sums.tensor_partial = options.tensor_partial;
    // In one chunk the head uses the embedding's own gradient; two copies, on one position or on two, must be summed.
    const bool holds_last = layers.position_of(last) == i;
    sums.tied = options.tied_embedding && last > 0 && (layers.position_of(0) == i || holds_last);
    sums.tied_chunk = layers.chunk_of(holds_last ? last : 0);
    if (!options.bucket_chunks.empty()) sums.bucket_chunk = options.bucket_chunks[static_cast<size_t>(i)];
    std::vector<Op> ops = compute_order(s, i);
    if (options.recompute == RecomputeOps::Separate) ops = insert_recompute(ops);
    ops = insert_loads(ops);
    ops = insert_messages(ops, layers, i, s.num_micro_batches);
    if (options.messages == Messages::Scattered) ops = insert_message_gathers(ops);
    ops = append_gradient_sums(ops, s.chunks, sums);
    ops = append_optimizer(std::move(ops));
    if (!options.gathered.empty()) {
      ops = insert_gathers(std::move(ops), options.gathered[static_cast<size_t>(i)], options.gather_time);
    }
    program.positions.push_back(std::move(ops));
  }
  program.unit_options = options.unit_options;
  program.units = options.units;
  return program;
}

Program make_evaluation_program(const ProgramOptions& options) {
  const ScheduleOptions& s = options.schedule;
  Program program{std::string("evaluate-") + name_of(s.kind),
                  s.pipeline,
                  s.chunks,
                  s.num_micro_batches,
                  options.layers,
                  {},
                  {},
                  {}};
  for (int i = 0; i < s.pipeline; ++i) {
    std::vector<Op> ops = compute_order(s, i);
    std::erase_if(ops, [](const Op& op) { return op.kind != OpKind::Forward; });
    ops = insert_loads(ops);
    ops = insert_messages(ops, options.layers, i, s.num_micro_batches);
    if (options.messages == Messages::Scattered) ops = insert_message_gathers(ops);
    program.positions.push_back(std::move(ops));
  }
  program.unit_options = options.unit_options;
  program.units = options.units;
  return program;
}

}  // namespace triax::parallel

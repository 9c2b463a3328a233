#include "parallel/program_passes.h"

#include <algorithm>

#include "parallel/schedule.h"

namespace triax::parallel {
namespace {

bool is_forward(const Op& op) { return op.kind == OpKind::Forward; }
// The op whose end makes the input gradient available.
bool is_backward_input(const Op& op) { return op.kind == OpKind::Backward || op.kind == OpKind::BackwardInput; }
bool is_backward_weight(const Op& op) { return op.kind == OpKind::Backward || op.kind == OpKind::BackwardWeight; }

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
    if (is_forward(op)) {
      Op load = plain(OpKind::LoadBatch, op.chunk, Stream::Host);
      load.micro_batch = op.micro_batch;
      out.push_back(load);
    }
    out.push_back(op);
  }
  return out;
}

std::vector<Op> insert_messages(const std::vector<Op>& ops, const LayerMap& layers, int position, int m) {
  if (layers.pipeline == 1 && layers.chunks == 1) return ops;
  const int p = layers.pipeline;
  const int next = 1 % p;
  const int previous = (p - 1) % p;
  std::vector<Op> out;
  for (const Op& op : ops) {
    const int stage = layers.virtual_stage(position, op.chunk);
    const bool first = stage == 0;
    const bool last = stage + 1 == layers.num_virtual_stages();
    if (is_forward(op)) {
      if (!first)
        out.push_back(
            message(OpKind::RecvActivation, op, previous, match_of(stage, Direction::Forward, m, op.micro_batch)));
      out.push_back(op);
      if (!last)
        out.push_back(
            message(OpKind::SendActivation, op, next, match_of(stage + 1, Direction::Forward, m, op.micro_batch)));
    } else if (is_backward_input(op)) {
      if (!last)
        out.push_back(message(OpKind::RecvGradient, op, next, match_of(stage, Direction::Backward, m, op.micro_batch)));
      out.push_back(op);
      if (!first)
        out.push_back(
            message(OpKind::SendGradient, op, previous, match_of(stage - 1, Direction::Backward, m, op.micro_batch)));
    } else {
      out.push_back(op);
    }
  }
  return out;
}

std::vector<Op> append_gradient_sums(const std::vector<Op>& ops, int chunks, const GradientSums& sums) {
  std::vector<size_t> last(static_cast<size_t>(chunks), 0);
  for (size_t i = 0; i < ops.size(); ++i) {
    if (is_backward_weight(ops[i])) last[static_cast<size_t>(ops[i].chunk)] = i;
  }
  std::vector<Op> out;
  std::vector<Op> tail;
  const auto sums_of_chunk = [&](int chunk, std::vector<Op>& to) {
    if (sums.tensor_partial) to.push_back(plain(OpKind::SumTensorPartial, chunk, Stream::Tensor));
    if (sums.tied && chunk == sums.tied_chunk) to.push_back(plain(OpKind::SumTied, chunk, Stream::Pipeline));
    for (size_t b = 0; b < sums.bucket_chunk.size(); ++b) {
      if (sums.bucket_chunk[b] == chunk)
        to.push_back(plain(OpKind::ReduceGradients, chunk, Stream::Data, static_cast<int>(b)));
    }
  };
  for (size_t i = 0; i < ops.size(); ++i) {
    out.push_back(ops[i]);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (!is_backward_weight(ops[i]) || last[static_cast<size_t>(chunk)] != i || ops[i].chunk != chunk) continue;
      // A tied sum in the middle of the pass could wait for a partner that waits for our messages: it goes last.
      const bool at_end = sums.tied && chunk == sums.tied_chunk;
      sums_of_chunk(chunk, at_end ? tail : out);
    }
  }
  out.insert(out.end(), tail.begin(), tail.end());
  return out;
}

std::vector<Op> append_optimizer(std::vector<Op> ops) {
  ops.push_back(plain(OpKind::GradientNorm, 0, Stream::Compute));
  ops.push_back(plain(OpKind::OptimizerStep, 0, Stream::Compute));
  return ops;
}

Program make_training_program(const ProgramOptions& options) {
  const ScheduleOptions& s = options.schedule;
  Program program{name_of(s.kind), s.pipeline, s.chunks, s.num_micro_batches, options.layers, {}};
  for (int i = 0; i < s.pipeline; ++i) {
    GradientSums sums;
    sums.tensor_partial = options.tensor_partial;
    // On one stage the head uses the embedding's own gradient; between stages two copies must be summed.
    sums.tied = options.tied_embedding && s.pipeline > 1 && (i == 0 || i + 1 == s.pipeline);
    sums.tied_chunk = i == 0 ? 0 : s.chunks - 1;
    if (!options.bucket_chunks.empty()) sums.bucket_chunk = options.bucket_chunks[static_cast<size_t>(i)];
    std::vector<Op> ops = compute_order(s, i);
    ops = insert_loads(ops);
    ops = insert_messages(ops, options.layers, i, s.num_micro_batches);
    ops = append_gradient_sums(ops, s.chunks, sums);
    program.positions.push_back(append_optimizer(std::move(ops)));
  }
  return program;
}

Program make_evaluation_program(const ProgramOptions& options) {
  const ScheduleOptions& s = options.schedule;
  Program program{
      std::string("evaluate-") + name_of(s.kind), s.pipeline, s.chunks, s.num_micro_batches, options.layers, {}};
  for (int i = 0; i < s.pipeline; ++i) {
    std::vector<Op> ops = compute_order(s, i);
    std::erase_if(ops, [](const Op& op) { return op.kind != OpKind::Forward; });
    ops = insert_loads(ops);
    program.positions.push_back(insert_messages(ops, options.layers, i, s.num_micro_batches));
  }
  return program;
}

}  // namespace triax::parallel

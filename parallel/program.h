// A run's step as data: per pipeline position an ordered list of typed ops. The trainer executes it, the checker,
// simulator and printers read it. Peers are named by axis and offset, never by world rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/layout.h"
#include "parallel/unit_ops.h"

namespace triax::parallel {

enum class OpKind : uint8_t {
  LoadBatch,         ///< tokens of a micro-batch (first and last virtual stage)
  Forward,           ///< F
  Backward,          ///< B = input and weight gradients in one op
  BackwardInput,     ///< I
  BackwardWeight,    ///< W
  SendActivation,    ///< to virtual stage + 1
  RecvActivation,    ///< from virtual stage - 1
  SendGradient,      ///< to virtual stage - 1
  RecvGradient,      ///< from virtual stage + 1
  SumTensorPartial,  ///< gradients of tensors replicated over tp that are partial sums: all-reduce over tp
  SumTied,           ///< word embedding gradient over the first and last stage
  ReduceGradients,   ///< bucket of gradients over dp
  GradientNorm,      ///< overflow test, global norm, clip factor
  OptimizerStep,
  Recompute,         ///< R: a chunk's forward again, from its checkpoints, ahead of its backward
  GatherParameters,  ///< weights of a block over dp, after their owners have updated them (ZeRO 1 to 3)
  GatherActivation,  ///< the slices of a received activation over tp, each sent by one tp rank
  GatherGradient,    ///< the same of a gradient
};
inline constexpr int kNumOpKinds = 18;
/// "LOAD", "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "SUM_TP", "SUM_TIED", "REDUCE_GRAD", "NORM",
/// "OPT", "R", "GATHER", "GATHER_F", "GATHER_B".
const char* name_of(OpKind kind);

constexpr bool is_forward(OpKind kind) { return kind == OpKind::Forward; }
/// Its end makes the gradient of the chunk's input available.
constexpr bool is_backward_input(OpKind kind) { return kind == OpKind::Backward || kind == OpKind::BackwardInput; }
/// Its end completes the micro-batch's weight gradients of the chunk and frees its activations.
constexpr bool is_backward_weight(OpKind kind) { return kind == OpKind::Backward || kind == OpKind::BackwardWeight; }
/// Work of the model: F, B, I, W, R.
constexpr bool is_compute(OpKind kind) {
  return is_forward(kind) || is_backward_input(kind) || is_backward_weight(kind) || kind == OpKind::Recompute;
}
constexpr bool is_send(OpKind kind) { return kind == OpKind::SendActivation || kind == OpKind::SendGradient; }
constexpr bool is_message_gather(OpKind kind) {
  return kind == OpKind::GatherActivation || kind == OpKind::GatherGradient;
}
constexpr bool is_receive(OpKind kind) { return kind == OpKind::RecvActivation || kind == OpKind::RecvGradient; }

enum class Stream : uint8_t { Compute, Tensor, Data, Pipeline, Host };

struct Op {
  OpKind kind = OpKind::Forward;
  int chunk = 0;        ///< model chunk on this position
  int micro_batch = 0;  ///< of this replica
  int bucket = -1;      ///< ReduceGradients, GatherParameters: block of the position's ShardPlan
  Stream stream = Stream::Compute;
  int peer_offset = 0;  ///< sends and receives: pipeline position of the peer minus ours, modulo p
  int64_t match = -1;   ///< sends and receives: equal on both sides, unique in the step; also the message tag
  bool operator==(const Op&) const = default;
};

struct Program {
  std::string schedule;  ///< "1f1b", ...
  int pipeline = 1;
  int chunks = 1;
  int num_micro_batches = 1;
  LayerMap layers;
  std::vector<std::vector<Op>> positions;  ///< [pipeline][ops in order]
  UnitOptions unit_options;
  std::vector<PositionUnits> units;  ///< [pipeline]; empty where no weights or gradients are sharded inside ops
  bool operator==(const Program&) const = default;
};

/// FNV-1a, 64 bits, over a canonical text of every field: printed by all that execute the program.
uint64_t hash_of(const Program& program);

}  // namespace triax::parallel

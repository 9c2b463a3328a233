// Memory of one rank by formula: model states under ZeRO (arXiv 1910.02054 section 3), activations of a layer
// (Korthikanti et al. 2022, arXiv 2205.05198, section 4), what a stage keeps under a schedule. Bytes; no rank, no
// arena.
#pragma once

#include <cstdint>
#include <span>

#include "model/config.h"
#include "parallel/layer_context.h"
#include "parallel/layout.h"
#include "parallel/program.h"

namespace triax::model {

/// Bytes per parameter. Mixed precision with Adam: 2, 4 (fp32 main gradients; 2 where they stay bf16), 12 (fp32 master
/// weight and two moments). fp32 with Adam: 4, 4, 8.
struct StateWidths {
  int64_t weights = 2, gradients = 4, optimizer = 12;
  bool operator==(const StateWidths&) const = default;
};

/// How the states of one model-parallel rank are spread over its d replicas.
struct ZeroSharding {
  int stage = 0;
  int64_t data_parallel = 1;    ///< d
  int64_t shard_group = 1;      ///< g, divides d; the group over which states are cut (d, unless hybrid)
  int64_t parameter_group = 0;  ///< hpZ, divides g: weights are cut over these ranks only; 0: over g
};

struct StateBytes {
  int64_t weights = 0, gradients = 0, optimizer = 0;
  int64_t padding_elements = 0;  ///< over the shard group: what rounding up to whole elements per rank adds
  int64_t total() const { return weights + gradients + optimizer; }
};
/// psi parameters of a rank: stage 0 (w + gr + opt) psi; 1: opt psi / g; 2: (gr + opt) psi / g; 3: all / g, with hpZ
/// weights / hpZ. psi / g is rounded up to whole elements.
StateBytes state_bytes(int64_t parameters, const StateWidths& widths, const ZeroSharding& zero);

/// Flash keeps a log-sum-exp per head and token; unfused attention keeps the softmax output, its dropout mask and the
/// dropped probabilities (5 a s^2 b in 16 bit), as the papers count.
enum class AttentionMemory { Flash, Unfused };

struct ActivationShape {
  int64_t micro_batch = 1;      ///< b
  int64_t tensor_parallel = 1;  ///< t
  parallel::SequenceParallel sequence_parallel = parallel::SequenceParallel::No;
  AttentionMemory attention = AttentionMemory::Flash;
  int64_t element_bytes = 2;    ///< of an activation
  int64_t statistic_bytes = 4;  ///< of logits' softmax and the log-sum-exp
};

/// What one layer keeps from forward to backward for one micro-batch on one rank.
struct LayerActivations {
  int64_t hidden = 0;  ///< norm inputs, inputs of qkv and fc1, dropout masks: cut over t only with sequence parallelism
  int64_t inner = 0;   ///< q, k, v, attention output, MLP inside: cut over t
  int64_t scores = 0;  ///< attention's s x s tensors (Unfused) or log-sum-exp (Flash); selective recomputation drops it
  int64_t total() const { return hidden + inner + scores; }
};
/// GELU, f = 4h, k = a, dropout, 16 bit, unfused: sbh(10 + 24/t + 5as/(ht)), with sequence parallelism sbh(34/t +
/// 5as/(ht)) (Korthikanti table 2). SwiGLU, RMSNorm, no dropout, flash: (sbh(12 + 4k/a) + 6sbf + 4abs) / t.
LayerActivations layer_activations(const ModelConfig& config, const ActivationShape& shape);

/// What one chunk keeps for one micro-batch.
struct ChunkActivations {
  int64_t layers = 0;   ///< of its layers, under the recomputation asked for
  int64_t ends = 0;     ///< first: mask of the embedding's dropout; last: norm and projection input, logits twice
  int64_t working = 0;  ///< live only while the backward recomputes: the layers of one group, or one layer's scores
};
/// Full recomputation keeps the input of each group, 2sbh (/t with sequence parallelism). Logits: (2 + 4) sbV/t.
ChunkActivations chunk_activations(const ModelConfig& config, const ActivationShape& shape,
                                   const parallel::Recompute& recompute, const parallel::LayerMap& layers, int stage);

struct MemoryRequest {
  parallel::LayerMap layers;
  parallel::Recompute recompute;
  ActivationShape activations;
  StateWidths widths;
  ZeroSharding zero;
  int64_t bucket_parameters = 0;  ///< of a gradient bucket; stage 2 holds two
  int64_t prefetch = 1;           ///< stage 3: units gathered ahead
};

struct StageMemory {
  int64_t parameters = 0;          ///< of this rank, vocabulary padding included
  int64_t vocabulary_padding = 0;  ///< parameters in rows that no token has, over all tensor ranks
  StateBytes states;
  int in_flight = 0;        ///< most chunk activations alive: F done, W (or B) not done
  int64_t activations = 0;  ///< layers' activations when most bytes are alive
  int64_t ends = 0;         ///< embedding and head at that moment
  int64_t working = 0;
  int peak_op = -1;     ///< index in `ops` of the op at that moment
  int64_t buffers = 0;  ///< messages between stages, stage 2: two buckets, stage 3: gathered units and their gradients
  int64_t total() const { return states.total() + activations + ends + working + buffers; }
};
/// Pipeline position `position`, tensor rank 0, whose compute ops are `ops` in order (parallel::compute_order).
/// Buffers: p > 1: 2 messages of 2sbh (/t with sequence parallelism); stage 3: w (1 + prefetch) U + gr U, U the largest
/// unit (layer, embedding, head).
StageMemory stage_memory(const ModelConfig& config, const MemoryRequest& request, std::span<const parallel::Op> ops,
                         int position);

}  // namespace triax::model

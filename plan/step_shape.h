// What decides the time of a step, as plain numbers: a planner prices a million of these. Letters as in
// docs/notation.md.
#pragma once

#include <cstdint>

#include "io/run_options.h"
#include "parallel/shard_plan.h"

namespace triax::plan {

struct StepShape {
  // Model
  int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_size = 0, seq = 0;
  int64_t vocab = 0;  ///< V, padded for this tensor parallel size
  model::ActivationType activation = model::ActivationType::Gelu;
  model::NormType norm = model::NormType::LayerNorm;
  bool learned_positions = true, rotary = false, biases = true, tied = true;
  bool hidden_dropout = true, attention_dropout = true;
  // Layout
  comm::RankOrder order = comm::RankOrder::TpCpDpPp;
  int tensor = 1, pipeline = 1, chunks = 1, data = 1;
  bool sequence_parallel = false;
  parallel::ScheduleKind schedule = parallel::ScheduleKind::OneFOneB;
  int zero = 0, shard_group = 1;
  /// Under hpZ the shard group holds weights alone: gradients are reduced and states cut over all of dp.
  parallel::StateSharding states = parallel::StateSharding::ShardGroup;
  parallel::KeepGathered keep = parallel::KeepGathered::Forward;
  parallel::RecomputeGranularity recompute = parallel::RecomputeGranularity::None;
  int64_t recomputed_layers = 0;  ///< of each chunk, at most; full recomputation only
  bool scatter_gather = false;    ///< messages between stages travel as t slices
  bool overlap_grad_reduce = true, overlap_param_gather = true, overlap_p2p = true;
  int64_t first_layers = 0, last_layers = 0;  ///< of the first and last position; 0: even
  // Step
  int64_t micro_batch = 1, num_micro_batches = 1;
  // Numbers
  DType dtype = DType::BFloat16;
  int64_t element_bytes = 2;   ///< of weights and activations
  int64_t gradient_bytes = 4;  ///< of a gradient as it is reduced
  int64_t gather_bytes = 2;    ///< of a weight as it is gathered
  // Update
  io::OptimizerKind optimizer = io::OptimizerKind::Adam;
  double optimizer_bytes = 34;  ///< read and written for each owned parameter in a step, the norm's read included

  int64_t tokens() const { return micro_batch * seq; }
  int64_t query_size() const { return heads * head_size; }
  int64_t kv_size() const { return kv_heads * head_size; }
  int ranks() const { return tensor * pipeline * data; }
  int64_t global_batch() const { return micro_batch * num_micro_batches * data; }
};

/// Layers of a chunk of so many that the backward computes again in full.
int64_t recomputed_of_chunk(const parallel::Recompute& recompute, int64_t layers_of_chunk);

/// Of resolved options (io::resolve).
StepShape shape_of(const io::RunOptions& options);

/// "none", "selective", "full".
const char* name_of(parallel::RecomputeGranularity granularity);

/// Parameters of one layer, of the embeddings (word and learned positions) and of final norm with head, on one tensor
/// rank. A tied head is counted with the embedding when both are on one position.
struct ShapeParameters {
  double layer = 0, embedding = 0, head = 0;
};
ShapeParameters parameters_of(const StepShape& shape);

/// Layers of pipeline position `position` under the even split (earlier positions take the remainder) with the first
/// and last as given.
int64_t layers_of_position(const StepShape& shape, int position);

/// Operations of one step in the convention of Narayanan 2021 (eq. 3) and Korthikanti 2022: full square of attention;
/// `recompute` adds the second forward.
enum class FlopCount { Model, Hardware };
double step_flops_of(const StepShape& shape, FlopCount count);

}  // namespace triax::plan

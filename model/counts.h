// Parameters and floating-point operations of a model, by formula (multiply-add = 2 operations).
#pragma once

#include <cstdint>

#include "model/config.h"
#include "parallel/layout.h"

namespace triax::model {

/// Parameters of the whole model with the true vocabulary: the number that papers and model cards print.
int64_t parameter_count(const ModelConfig& config);
/// Parameters of one transformer layer, all tensor ranks together.
int64_t layer_parameters(const ModelConfig& config);

/// Parameters held by tensor rank 0 of pipeline position `position`: sharded tensors divided by tp (KV projections are
/// replicated when tp exceeds the KV heads), the vocabulary padded. A tied head is a second copy of the word embedding
/// where the last virtual stage is on another position than the first.
int64_t rank_parameters(const ModelConfig& config, int tensor_parallel, const parallel::LayerMap& layers, int position);

/// Attention scores counted fully (as the papers do) or only below the diagonal (as the kernel computes them).
enum class AttentionCount { Dense, CausalHalf };

/// Operations of one step over a global batch of B samples, all ranks together.
struct StepFlops {
  double model = 0;     ///< forward + 2x backward, no recomputation
  double hardware = 0;  ///< with recomputation
};
/// Layer forward: 2Bs [2 h q + 2 h kv + (2|3) h f] + 4 B s^2 q c, c = 1 dense, 1/2 causal; head 2 B s h V with V
/// padded; backward twice that. Recompute full: + the forward of the recomputed layers; selective: + 4 B s^2 q c of all
/// layers. For MHA, f = 4h and dense: model = 72 B L s h^2 (1 + s/(6h) + V/(12hL)) (Narayanan 2021 eq. 3, without
/// recompute).
StepFlops step_flops(const ModelConfig& config, int64_t global_batch, int64_t padded_vocab, AttentionCount attention,
                     parallel::RecomputeGranularity granularity = parallel::RecomputeGranularity::None,
                     int64_t recomputed_layers = 0);

/// Loss before the first update: ln V + h sigma^2 / 2. The final norm's output has unit mean square, so a logit of
/// untrained weights of standard deviation sigma has variance h sigma^2. Dropout and tied copies move it by a few
/// hundredths.
double expected_first_loss(const ModelConfig& config);

/// Layers of all stages that the backward pass computes again in full; 0 unless granularity is full.
int64_t recomputed_layers(const parallel::Recompute& recompute, const parallel::LayerMap& layers);

}  // namespace triax::model

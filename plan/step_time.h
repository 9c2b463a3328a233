// Time of a step in closed form, from the same layer times that fill the simulator's cost table: what the planner ranks
// a million candidates by, and what predictions of published runs are made with.
#pragma once

#include "plan/layer_time.h"

namespace triax::plan {

/// What depends only on the model, t, b, sequence parallelism, recomputation, ZeRO and its group: priced once, used for
/// every pipeline depth and number of micro-batches.
struct LayerCosts {
  PassTimes layer, embedding, head;
  /// Exposed gathers (forward) and gathers and reductions (backward) of ZeRO 2 and 3.
  struct Unit {
    double forward_s = 0, backward_s = 0;
  };
  Unit shard_layer, shard_embedding, shard_head;
  Unit shard_edge;  ///< more for the first gather and the last reduction, which nothing runs beside
};
/// Exposed gathers and reductions of one micro-batch on `layers` layers of position or chunk `stage` of `stages`;
/// what stands at the edges of a step is spread over its micro-batches. ZeRO 3 that keeps weights over the step
/// gathers once.
LayerCosts::Unit shard_times(const Pricing& pricing, const StepShape& shape, const LayerCosts& costs, double layers,
                             int stage, int stages);
LayerCosts layer_costs(const Pricing& pricing, const StepShape& shape);

/// Where a step's time goes on its critical stage; the parts sum to step_s.
struct StepTime {
  double step_s = 0;
  double compute_s = 0;    ///< GEMMs, attention, passes over memory of m micro-batches, without recomputation
  double recompute_s = 0;  ///< its collectives included
  double tensor_s = 0;     ///< exposed collectives of tp
  double gather_s = 0;     ///< exposed gathers and reductions inside the passes (ZeRO 2 and 3)
  double host_s = 0;       ///< what waiting for the host adds
  double bubble_s = 0;
  double message_s = 0;    ///< exposed messages between stages
  double data_s = 0;       ///< exposed gradient reduction and gather of updated weights
  double optimizer_s = 0;  ///< norm, update, tied embedding
};

/// Uniform stages but for the ends; f, b of a micro-batch on the slowest stage, c one message:
///   gpipe, 1f1b   sum_i (f_i + b_i) + (m-1) max (f+b) + 2c [(p-1) m/p + p-2]      (gpipe: + 2c (p-1))
///   interleaved   m max (f+b) + sum_{i>0} (f_i + b_i) / v + 2c (vp-1); without overlap of messages + c v m,
///                 c the time of what a step sends to both neighbours where the program sends it together
///   zb-h1, -h2    m max + (p-1) (F+I-W), (F+I-2W); zb-v m max: not below what the last micro-batch takes,
///                 (m-1) (F + I)/v + sum_i (F_i + I_i) + W/v
/// then gradients over dp beside the last backward, optimizer, gathers.
StepTime step_time(const Pricing& pricing, const StepShape& shape, const LayerCosts& costs);
StepTime step_time(const Pricing& pricing, const StepShape& shape);

/// Device and host side by side: the longer where launches and kernels are even, more where they are not.
double with_host(const Software& software, double device_s, double host_s);
/// Seconds of one message between neighbouring stages.
double message_time(const Pricing& pricing, const StepShape& shape);
/// Seconds of the reduction of `parameters` gradients over dp, of the gather of as many weights, both once a step.
/// Under hpZ weights go from their owners to the shards: an all-gather over the replicas of a shard.
double reduce_time(const Pricing& pricing, const StepShape& shape, double parameters);
double gather_time(const Pricing& pricing, const StepShape& shape, double parameters);
/// Norm and update of what one rank owns of `parameters`.
double optimizer_time(const Pricing& pricing, const StepShape& shape, double parameters);
/// Sum of the word embedding's gradient over first and last stage; 0 where both are one or nothing is tied.
double tied_time(const Pricing& pricing, const StepShape& shape);

}  // namespace triax::plan

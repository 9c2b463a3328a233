// Time of one transformer layer, of the embedding and of head with loss, for one micro-batch on one rank: from GEMMs,
// attention, passes over memory, collectives of the tp group, and what the host needs to start them.
#pragma once

#include "plan/cost_model.h"
#include "plan/device_time.h"
#include "plan/software.h"
#include "plan/step_shape.h"

namespace triax::plan {

/// A machine under a program at one dtype: everything that is priced goes through this.
struct Pricing {
  DeviceTimes device;
  CollectiveTimes collectives;
  Software software;
  int devices_per_node = 1;
  double memory_nominal = 0;  ///< bytes/s of the machine's description

  /// The machine's "launch_s", where it is measured, is what a launch costs a program that names no cost of its own.
  Pricing(const bench::Hardware& hardware, const Software& software, DType dtype);
};

/// The parts of a layer's passes, all of one micro-batch.
struct PassTimes {
  OpParts forward, backward_input, backward_weight;
  OpParts recompute;  ///< what full or selective recomputation runs again; its collectives included
  double host_forward_s = 0, host_backward_s = 0;  ///< of the host
};

/// GEMMs (forward TN, input gradient NN, weight gradient NT, b s tokens):
///   qkv [bs, (q+2kv)/t, h], projection [bs, h, q/t], expansion [bs, (1|2) f/t, h], contraction [bs, h, f/t].
/// Attention unfused: 2 (forward) and 4 (backward) batched products, 12 and 17 bytes per score at 16 bit
/// where softmax is one kernel, 45 and 53 where it is not; flash: flops
/// over the measured or published rate. tp: two all-reduces of 2bsh forward, two backward, two in a full recompute;
/// under sequence parallelism each is a reduce-scatter and an all-gather, and the backward gathers twice more.
PassTimes layer_times(const Pricing& pricing, const StepShape& shape);
/// Embedding (with its all-reduce or reduce-scatter under vocabulary parallelism).
PassTimes embedding_times(const Pricing& pricing, const StepShape& shape);
/// Final norm, logits, loss.
PassTimes head_times(const Pricing& pricing, const StepShape& shape);

/// Place of the tp and the dp group of a shape on the machine, of the group that shares weights (ZeRO) and of the one
/// that shares gradients and states: the same but for hpZ.
GroupPlace tensor_place(const Pricing& pricing, const StepShape& shape);
GroupPlace data_place(const Pricing& pricing, const StepShape& shape);
GroupPlace shard_place(const Pricing& pricing, const StepShape& shape);
GroupPlace state_place(const Pricing& pricing, const StepShape& shape);

}  // namespace triax::plan

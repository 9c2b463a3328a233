// What a training program does beside the arithmetic, as the cost model needs to know it: which attention, which passes
// over memory, what the host pays, what hides behind what. One preset for Triax itself and one for each program whose
// published measurements are predicted.
#pragma once

#include <string>
#include <vector>

#include "bench/hardware.h"

namespace triax::plan {

enum class AttentionKernel {
  Unfused,  ///< scores and probabilities go through memory
  Flash,    ///< they stay on the chip
};

/// Where the sum over tp in the backward of a column-parallel layer goes.
enum class TensorOverlap {
  None,            ///< stands between input and weight gradient
  WeightGradient,  ///< beside the weight gradient (Korthikanti 2022, Megatron-LM from 2022 on)
  Pipelined,       ///< forwards too: GEMMs in pieces, each piece's transfer beside the next (Transformer Engine)
};

struct Software {
  std::string name;
  std::string description;
  AttentionKernel attention = AttentionKernel::Flash;
  double attention_share = 0.5;  ///< of the square of scores that is computed: 1, or 1/2 below the diagonal
  TensorOverlap tensor_overlap = TensorOverlap::None;
  bool gathers_by_unit = false;       ///< updated weights (ZeRO 1, 2) are awaited layer by layer, not by chunk
  bool shards_across_passes = true;   ///< gathers and reductions of ZeRO 2, 3 run on from one micro-batch to the next
  int64_t fused_softmax_batches = 1;  ///< unfused attention: softmax is one kernel where this divides b a/t
  /// Interleaved, messages awaited: how many share a port in each step. Megatron-LM sends to both neighbours at once.
  double awaited_messages = 1;
  int64_t gradient_bytes = 0;    ///< of a gradient as it is reduced; 0: as the run's options say
  double forward_launches = 0;   ///< kernels and copies that the host starts for one layer, forward
  double backward_launches = 0;  ///< backward
  bench::Constant launch_s;      ///< of the host for each; kernels run behind it, so the longer of both counts
  bench::Constant host_norm;  ///< n of (device^n + host^n)^(1/n): how evenly kernels' lengths are mixed; 0: the longer
  bench::Constant step_s;     ///< of the host for one step: data, optimizer, logging
  bench::Constant micro_batch_s;      ///< of the host for one micro-batch beside its layers
  bench::Constant message_s;          ///< of host and device around one exchange between stages, beside the wire
  bench::Constant collective_s;       ///< of the device around one collective of tp: the streams wait for each other
  bench::Constant shard_bytes_per_s;  ///< of a rank, that gathers of ZeRO 3 reach at most; 0: as the links allow
  bench::Constant optimizer_bytes;    ///< read and written for each owned parameter in a step; 0: as its options say
  bench::Constant
      accumulate_bytes;         ///< read and written for each parameter to add a micro-batch's gradient; 0: by the GEMM
  bench::Constant logit_bytes;  ///< read and written for each logit, forward and backward, beside the GEMMs
  bench::Constant elementwise;  ///< bytes of norms, activations and sums against perfectly fused ones
};

/// "triax", then those of the published measurements.
const std::vector<Software>& software_presets();
/// nullptr when there is none of that name.
const Software* find_software(const std::string& name);

}  // namespace triax::plan

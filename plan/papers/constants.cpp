#include "plan/papers/constants.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "plan/hardware_presets.h"

namespace triax::plan {
namespace {

using bench::Origin;
using Setter = std::function<void(Pricing&, double)>;

/// Name of a constant -> what it sets.
const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> kSetters{
      {"gemm_share_of_peak",
       [](Pricing& p, double v) {
         p.device.gemm_flops = v * p.device.peak_flops;
         if (p.device.wide_flops > 0) p.device.wide_flops = v * p.device.peak_flops / 2;
       }},
      {"gemm_bytes_per_s", [](Pricing& p, double v) { p.device.gemm_bytes_per_s = v; }},
      {"gemm_memory_share", [](Pricing& p, double v) { p.device.gemm_bytes_per_s = v * p.memory_nominal; }},
      {"memory_share", [](Pricing& p, double v) { p.device.memory_bytes_per_s = v * p.memory_nominal; }},
      {"score_share", [](Pricing& p, double v) { p.device.score_bytes_per_s = v * p.memory_nominal; }},
      {"batched_half", [](Pricing& p, double v) { p.device.batched_half = v; }},
      {"batched_power", [](Pricing& p, double v) { p.device.batched_power = v; }},
      {"port_share", [](Pricing& p, double v) { p.collectives.port_share = v; }},
      {"crossing_share", [](Pricing& p, double v) { p.collectives.crossing_share = v; }},
      {"shard_bytes_per_s", [](Pricing& p, double v) { p.software.shard_bytes_per_s.value = v; }},
      {"gemm_floor_s", [](Pricing& p, double v) { p.device.gemm_floor_s = v; }},
      {"weight_gradient_slowdown", [](Pricing& p, double v) { p.device.weight_gradient = v; }},
      {"unaligned_share", [](Pricing& p, double v) { p.device.unaligned_share = v; }},
      {"memory_bytes_per_s", [](Pricing& p, double v) { p.device.memory_bytes_per_s = v; }},
      {"optimizer_bytes_per_s", [](Pricing& p, double v) { p.device.optimizer_bytes_per_s = v; }},
      {"kernel_floor_s", [](Pricing& p, double v) { p.device.kernel_floor_s = v; }},
      {"attention_flops", [](Pricing& p, double v) { p.device.attention_flops = v; }},
      {"attention_backward_flops", [](Pricing& p, double v) { p.device.attention_backward_flops = v; }},
      {"nvlink_bytes_per_s", [](Pricing& p, double v) { p.collectives.inner.bytes_per_s = v; }},
      {"collective_copy_s_per_byte", [](Pricing& p, double v) { p.collectives.copy_s_per_byte = v; }},
      {"collective_fill_bytes", [](Pricing& p, double v) { p.collectives.fill_bytes = v; }},
      {"collective_fill_s_per_byte", [](Pricing& p, double v) { p.collectives.fill_s_per_byte = v; }},
      {"nvlink_latency_s", [](Pricing& p, double v) { p.collectives.inner.latency_s = v; }},
      {"collective_base_s", [](Pricing& p, double v) { p.collectives.base_s = v; }},
      {"collective_half_bytes", [](Pricing& p, double v) { p.collectives.half_bytes = v; }},
      {"nic_bytes_per_s", [](Pricing& p, double v) { p.collectives.outer.bytes_per_s = v; }},
      {"nic_latency_s", [](Pricing& p, double v) { p.collectives.outer.latency_s = v; }},
      {"contention", [](Pricing& p, double v) { p.collectives.inner.contention = p.collectives.outer.contention = v; }},
      {"launch_s", [](Pricing& p, double v) { p.software.launch_s.value = v; }},
      {"micro_batch_s", [](Pricing& p, double v) { p.software.micro_batch_s.value = v; }},
      {"step_s", [](Pricing& p, double v) { p.software.step_s.value = v; }},
      {"host_norm", [](Pricing& p, double v) { p.software.host_norm.value = v; }},
      {"message_s", [](Pricing& p, double v) { p.software.message_s.value = v; }},
      {"optimizer_bytes", [](Pricing& p, double v) { p.software.optimizer_bytes.value = v; }},
      {"collective_s", [](Pricing& p, double v) { p.software.collective_s.value = v; }},
      {"accumulate_bytes", [](Pricing& p, double v) { p.software.accumulate_bytes.value = v; }},
      {"logit_bytes", [](Pricing& p, double v) { p.software.logit_bytes.value = v; }},
      {"scores", [](Pricing& p, double v) { p.device.score_bytes_per_s /= v; }},
      {"elementwise", [](Pricing& p, double v) { p.software.elementwise.value = v; }},
  };
  return kSetters;
}

Software base(const char* name) {
  Software s;
  s.name = name;
  s.attention = AttentionKernel::Unfused;
  s.attention_share = 1;
  s.shards_across_passes = false;
  s.awaited_messages = 2;  // Megatron-LM megatron/p2p_communication.py, send_forward_backward_recv_forward_backward
  s.fused_softmax_batches = 4;  // Megatron-LM megatron/model/fused_softmax.py, is_kernel_available
  s.forward_launches = 24;
  s.backward_launches = 40;
  s.optimizer_bytes.value = 58;
  // Megatron-LM mpu/cross_entropy.py on fp32 logits: cast 6, maximum 4, difference 8, exponential 8, sum 4, quotient 8;
  // backward product 8, cast 6.
  s.logit_bytes.value = 52;
  s.elementwise.value = 1;
  return s;
}

std::vector<Software> make_softwares() {
  std::vector<Software> all;
  all.push_back(base("megatron-2019"));
  all.push_back(base("megatron-2020"));
  all.push_back(base("megatron-2021"));
  all.push_back(base("megatron-2022"));
  all.back().tensor_overlap = TensorOverlap::WeightGradient;
  all.push_back(base("megatron-deepspeed"));
  all.push_back(base("megatron-2021-zero3"));
  all.push_back(base("llm-foundry"));
  all.back().attention = AttentionKernel::Flash;
  all.back().attention_share = 0.5;
  all.back().logit_bytes.value = 34;  // casts and the two passes of PyTorch's log-softmax
  all.push_back(base("megatron-core-2024"));
  all.back().attention = AttentionKernel::Flash;
  all.back().attention_share = 0.5;
  all.back().tensor_overlap = TensorOverlap::Pipelined;
  all.back().gathers_by_unit = true;
  return all;
}

/// "a100-80gb" is of the family "a100", "megatron-2021-zero3" of "megatron-2021".
bool family(const std::string& name, const std::string& scope) {
  return name == scope || name.starts_with(scope + "-");
}

}  // namespace

const std::vector<PaperConstant>& paper_constants() {
  constexpr Origin F = Origin::Fitted;
  constexpr Origin A = Origin::Assumed;
  constexpr Origin P = Origin::Published;
  static const std::vector<PaperConstant> kAll{
      {"a100", "gemm_share_of_peak", 0.7798, 0.6, 0.95, 0.78, F,
       "A100 rows marked fit; start: 183 published GEMM times"},
      {"a100+llm-foundry", "gemm_share_of_peak", 0.7571, 0.6, 0.95, 0.8, F,
       "llm-foundry A100 rows marked fit: a newer cuBLAS"},
      {"a100+megatron-2022", "gemm_share_of_peak", 0.8259, 0.6, 0.95, 0.78, F,
       "Korthikanti 2022 rows marked fit: the cuBLAS of its time"},
      {"a100+megatron-deepspeed", "gemm_share_of_peak", 0.8297, 0.6, 0.95, 0.78, F,
       "vTrain rows marked fit: the cuBLAS of its time"},
      {"a100", "gemm_memory_share", 1.824, 0.6, 5, 1.6, F,
       "A100 rows marked fit; above 1: tiles come from the cache; start: 2.8 TB/s"},
      {"a100", "batched_half", 67.71, 5, 200, 75, F,
       "A100 rows marked fit; start: 130 and 219 TFLOP/s published at d = 128"},
      {"a100", "batched_power", 3.202, 1, 4, 3, F, "A100 rows marked fit: heads of 32 to 160"},
      {"a100", "unaligned_share", 0.6117, 0.1, 1, 0.5, F, "vTrain rows marked fit: its vocabulary of 50257"},
      {"a100", "gemm_floor_s", 7.622e-06, 1e-06, 2e-05, 8e-06, F,
       "A100 rows marked fit; start: 11 us published, launch included"},
      {"a100", "memory_share", 0.85, 0.5, 1, 0.85, A, "share of the datasheet's bandwidth that copies reach"},
      {"a100", "score_share", 0.85, 0.1, 1, 0.85, A, "as memory_share"},
      {"v100", "score_share", 0.85, 0.1, 1, 0.85, A, "as memory_share"},
      {"a100", "kernel_floor_s", 3e-06, 1e-06, 8e-06, 3e-06, A, "start and end of a small kernel"},
      {"a100", "attention_flops", 1.509e+14, 4e+13, 2.5e+14, 1.7e+14, F, "llm-foundry A100 rows marked fit"},
      {"a100", "attention_backward_flops", 8.622e+13, 4e+13, 2.5e+14, 1.4e+14, F, "llm-foundry A100 rows marked fit"},
      {"a100", "nvlink_bytes_per_s", 3e+11, 2.4e+11, 3e+11, 3e+11, P, "A100 datasheet: 12 NVLinks of 25 GB/s"},
      {"a100", "collective_copy_s_per_byte", 1.65e-12, 8e-13, 3.5e-12, 1.65e-12, A, "three passes at 1.8 TB/s"},
      {"a100", "collective_fill_bytes", 1.0066e8, 1e7, 1e9, 1.0066e8, P,
       "NCCL: 24 channels over 12 NVLinks, 4 MiB of buffers each"},
      {"a100", "collective_fill_s_per_byte", 4.7e-13, 1e-14, 5e-12, 5e-13, F, "vtrain-nccl rows marked fit"},
      {"a100", "nvlink_latency_s", 3.374e-06, 5e-07, 8e-06, 3e-06, F, "vtrain-nccl rows marked fit"},
      {"a100", "collective_base_s", 3.011e-05, 5e-06, 6e-05, 3.6e-05, F, "vtrain-nccl rows marked fit"},
      {"a100", "nic_bytes_per_s", 2.4e+10, 1.5e+10, 2.5e+10, 2.4e+10, P, "nccl-tests doc: 24 GB/s of a 200 Gb/s port"},
      {"a100", "port_share", 0.6986, 0.2, 1, 0.7, F, "Selene's rows marked fit"},
      {"a100", "nic_latency_s", 1e-05, 3e-06, 6e-05, 1e-05, A, "one hop through two adapters and a switch"},
      {"h100", "gemm_share_of_peak", 0.7966, 0.4, 0.9, 0.8, F,
       "H100 rows marked fit; start: the best GEMM of many, as on A100"},
      {"h100", "gemm_memory_share", 1.325, 0.5, 4, 1.3, F, "H100 rows marked fit"},
      {"h100", "memory_share", 0.5802, 0.4, 1, 0.75, F, "H100 rows marked fit"},
      {"h100", "attention_flops", 2.27e+14, 6e+13, 6e+14, 2.5e+14, F, "H100 rows marked fit"},
      {"h100", "attention_backward_flops", 1.574e+14, 6e+13, 6e+14, 2e+14, F, "H100 rows marked fit"},
      {"v100", "gemm_share_of_peak", 0.95, 0.5, 0.95, 0.75, F, "V100 row marked fit"},
      {"v100", "memory_share", 0.85, 0.5, 1, 0.85, A, "as on the A100"},
      {"v100+megatron-2019", "gemm_share_of_peak", 0.6263, 0.2, 0.95, 0.5, F, "the baseline of 39 TFLOP/s"},
      {"megatron-2019", "elementwise", 2, 0.6, 8, 2, A, "no fused kernels: each pass twice"},
      {"megatron-2019", "scores", 2, 0.6, 8, 2, A, "no fused kernels: each pass twice"},
      {"megatron-2020", "elementwise", 1.027, 0.6, 3, 1.2, F, "megatron20-readme rows marked fit"},
      {"megatron-2021", "elementwise", 1.077, 0.6, 3, 1, F, "Narayanan 2021 rows marked fit"},
      {"megatron-2022", "elementwise", 0.9973, 0.6, 3, 1, F, "Korthikanti 2022 rows marked fit"},
      {"megatron-deepspeed", "elementwise", 0.8447, 0.6, 3, 1.4, F, "vTrain rows marked fit"},
      {"llm-foundry", "elementwise", 1.279, 0.5, 3, 1, F, "llm-foundry rows marked fit"},
      {"megatron-core-2024", "elementwise", 0.7591, 0.4, 2, 0.8, F, "megatron-core24 row marked fit"},
      {"megatron-2021", "scores", 1.017, 0.7, 4, 1.5, F, "Narayanan 2021 rows marked fit"},
      {"megatron-deepspeed", "scores", 1.182, 0.7, 4, 1.5, F, "vTrain rows marked fit"},
      {"megatron", "collective_s", 2e-05, 0, 1e-04, 2e-05, A,
       "PyTorch records and awaits an event on either side of a collective's stream"},
      {"megatron-2021", "accumulate_bytes", 6, 0, 20, 6, A,
       "16-bit gradients are added by a kernel: 4 read, 2 written"},
      {"megatron-deepspeed", "accumulate_bytes", 6, 0, 20, 6, A, "as in Megatron"},
      {"megatron-2021", "launch_s", 1.5e-05, 3e-06, 6e-05, 1.5e-05, A, "PyTorch 1.8, half of what vTrain's runs show"},
      {"megatron-2022", "launch_s", 1e-05, 3e-06, 6e-05, 1e-05, A, "PyTorch 1.12"},
      {"megatron-deepspeed", "launch_s", 5.159e-05, 3e-06, 0.0001, 5e-05, F,
       "vTrain rows marked fit: small micro-batches wait for the host"},
      {"megatron-deepspeed", "port_share", 0.5404, 0.2, 1, 0.6, F, "vtrain-multi rows marked fit: another cluster"},
      {"a100+megatron", "crossing_share", 0.3144, 0.1, 1, 0.5, F,
       "A100 rows marked fit: NCCL before 2.12, dp of t = 2 and 4"},
      {"megatron-deepspeed", "host_norm", 3.998, 1.5, 10, 4, F, "vTrain rows marked fit"},
      {"megatron-2021", "step_s", 0.02044, 0.001, 0.2, 0.02, F, "Narayanan 2021 rows marked fit"},
      {"megatron-deepspeed", "micro_batch_s", 0.001, 1e-05, 0.02, 0.001, A,
       "data, schedule and logging of one micro-batch"},
      {"megatron-deepspeed", "step_s", 0.009461, 0.0001, 0.1, 0.01, F, "vTrain rows marked fit"},
      {"megatron-2021", "message_s", 0.0001, 1e-05, 0.002, 0.0001, A, "a device synchronisation around each exchange"},
      {"megatron-deepspeed", "message_s", 0.0001, 1e-05, 0.002, 0.0001, A, "as in Megatron"},
      {"llm-foundry", "launch_s", 1e-05, 3e-06, 6e-05, 1e-05, A, "PyTorch 2.0"},
      {"llm-foundry", "contention", 0.1015, 0.01, 0.4, 0.1, F, "llm-foundry rows marked fit"},
      {"megatron-2021-zero3", "shard_bytes_per_s", 1.771e+10, 5e+09, 1e+11, 1.7e+10, F,
       "Narayanan 2021 Table 2, ZeRO-3 529.6B on 1120: parameter by parameter"},
      {"megatron-2021-zero3", "contention", 0.5, 0.1, 0.8, 0.5, A,
       "the host that issues the gathers is the one that issues the kernels"},
  };
  return kAll;
}

std::vector<PaperConstant> fit_start() {
  std::vector<PaperConstant> constants = paper_constants();
  for (PaperConstant& c : constants) c.value = c.start;
  return constants;
}

const Software& paper_software(const std::string& name) {
  static const std::vector<Software> kAll = make_softwares();
  const auto found = std::find_if(kAll.begin(), kAll.end(), [&](const Software& s) { return s.name == name; });
  ensure(found != kAll.end(), "paper_software: no program named " + name);
  return *found;
}

bool applies(const PaperConstant& constant, const PaperRun& run) {
  const auto named = [&](const std::string& scope) {
    return family(run.machine, scope) || family(run.software, scope);
  };
  const size_t plus = constant.scope.find('+');
  if (plus == std::string::npos) return named(constant.scope);
  return named(constant.scope.substr(0, plus)) && named(constant.scope.substr(plus + 1));
}

Pricing pricing_of(const PaperRun& run, const std::vector<PaperConstant>& constants) {
  const bench::Hardware* hardware = find_hardware(run.machine);
  ensure(hardware != nullptr, "pricing_of: no machine named " + run.machine);
  Pricing p(*hardware, paper_software(run.software), run.shape.dtype);
  // Narrow scopes come after wide ones in the list.
  for (const PaperConstant& c : constants) {
    if (!applies(c, run)) continue;
    const auto setter = setters().find(c.name);
    ensure(setter != setters().end(), "pricing_of: no constant named " + c.name);
    setter->second(p, c.value);
  }
  return p;
}

PaperPrediction predict(const PaperRun& run, const std::vector<PaperConstant>& constants) {
  const Pricing pricing = pricing_of(run, constants);
  PaperPrediction prediction;
  if (run.metric == Metric::AllReduce) {
    prediction.figure =
        1e6 * pricing.collectives.time_s(comm::Operation::AllReduce, tensor_place(pricing, run.shape), run.bytes);
    return prediction;
  }
  const LayerCosts costs = layer_costs(pricing, run.shape);
  prediction.step = step_time(pricing, run.shape, costs);
  prediction.figure = figure_of(run, prediction.step, costs);
  return prediction;
}

}  // namespace triax::plan

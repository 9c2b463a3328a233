#include "plan/layer_time.h"

#include <algorithm>

namespace triax::plan {
namespace {

using bench::GemmLayout;
using comm::Operation;
using parallel::RecomputeGranularity;

/// Fractions of a layer that the helpers below share.
struct Dims {
  double tokens, hidden, query, kv, inner, gated, ranks, cut;  // cut: ranks under sequence parallelism, else 1
  explicit Dims(const StepShape& s)
      : tokens(static_cast<double>(s.tokens())),
        hidden(static_cast<double>(s.hidden)),
        query(static_cast<double>(s.query_size()) / s.tensor),
        kv(static_cast<double>(s.kv_size()) / static_cast<double>(std::min<int64_t>(s.tensor, s.kv_heads))),
        inner(static_cast<double>(s.ffn) / s.tensor),
        gated(s.activation == model::ActivationType::SwiGlu ? 2 : 1),
        ranks(s.tensor),
        cut(s.sequence_parallel ? s.tensor : 1) {}
};

/// One linear layer, out = in W^T on [tokens, in].
void add_linear(const DeviceTimes& device, double tokens, double in, double out, PassTimes& pass) {
  const double cast = device.cast_bytes();
  if (cast > 0) {
    pass.forward.elementwise_s += device.bytes_s(cast * (tokens * in + in * out));
    pass.backward_input.elementwise_s += device.bytes_s(cast * tokens * out);
  }
  pass.forward.gemm_s += device.gemm_s({GemmLayout::TN, false, tokens, out, in});
  pass.backward_input.gemm_s += device.gemm_s({GemmLayout::NN, false, tokens, in, out});
  pass.backward_weight.gemm_s += device.gemm_s({GemmLayout::NT, true, out, in, tokens});
}

/// Scores and probabilities through memory: [b a/t] products of [s,s,d].
void add_unfused_attention(const Pricing& p, const StepShape& s, PassTimes& pass, double& core_s) {
  const auto seq = static_cast<double>(s.seq);
  const auto d = static_cast<double>(s.head_size);
  const double count = static_cast<double>(s.micro_batch) * static_cast<double>(s.heads) / s.tensor;
  const double scores = count * seq * seq;
  const double e = p.device.element_bytes();
  const double mask = s.attention_dropout ? 1 : 0;
  const double product = p.device.batched_gemm_s(count, seq, seq, d) + p.device.batched_gemm_s(count, seq, d, seq);
  const auto pass_s = [&](double bytes) { return p.device.kernel_floor_s + bytes / p.device.score_bytes_per_s; };
  const double dropout = s.attention_dropout ? pass_s((2 * e + mask) * scores) : 0;
  const int64_t rows = s.micro_batch * s.heads / s.tensor;
  if (p.software.fused_softmax_batches > 0 && rows % p.software.fused_softmax_batches == 0) {
    // The causal kernels read what is below the diagonal.
    core_s = product + pass_s(1.5 * e * scores) + dropout;
    pass.backward_input.attention_s += 2 * product + pass_s(2 * e * scores) + dropout;
  } else {
    // Cast to fp32, scale, mask, softmax, cast back; each its own kernel, backward likewise.
    core_s = product + 2 * pass_s((e + 4) * scores) + 3 * pass_s(8 * scores) + dropout;
    pass.backward_input.attention_s +=
        2 * product + 2 * pass_s((e + 4) * scores) + 2 * pass_s(8 * scores) + pass_s(12 * scores) + dropout;
    pass.host_forward_s += 4 * p.software.launch_s.value;
    pass.host_backward_s += 4 * p.software.launch_s.value;
  }
  pass.forward.attention_s += core_s;
}

void add_flash_attention(const Pricing& p, const StepShape& s, PassTimes& pass, double& core_s) {
  const auto seq = static_cast<double>(s.seq);
  const auto d = static_cast<double>(s.head_size);
  const double count = static_cast<double>(s.micro_batch) * static_cast<double>(s.heads) / s.tensor;
  const bool dropout = s.attention_dropout;
  const std::string name = dropout ? "attention_dropout" : "attention";
  const std::string forward = p.device.has_kernel(name + "_forward") ? name + "_forward" : "attention_forward";
  const std::string backward = p.device.has_kernel(name + "_backward") ? name + "_backward" : "attention_backward";
  double back_s = 0;
  if (p.device.has_kernel(forward) && p.device.has_kernel(backward)) {
    core_s = count * p.device.kernel_s(forward, seq * seq, d);
    back_s = count * p.device.kernel_s(backward, seq * seq, d);
  } else {
    const double flops = 4 * count * seq * seq * d * p.software.attention_share;
    core_s = flops / p.device.attention_flops + p.device.attention_floor_s;
    back_s = 2.5 * flops / p.device.attention_backward_flops + p.device.attention_floor_s;
  }
  pass.forward.attention_s += core_s;
  pass.backward_input.attention_s += back_s;
}

/// Norms, residual sums, activation, rotation: measured kernels where the machine has them, else bytes over bandwidth.
void add_passes(const Pricing& p, const StepShape& s, const Dims& n, PassTimes& pass) {
  const DeviceTimes& device = p.device;
  const bool rms = s.norm == model::NormType::RMSNorm;
  const double rows = n.tokens / n.cut;
  const std::string norm = rms ? "rms_norm" : "layer_norm";
  const std::string residual = s.hidden_dropout ? "dropout" : "residual";
  const std::string activation = s.activation == model::ActivationType::SwiGlu ? "swiglu" : "gelu";
  double forward = 0;
  double backward = 0;
  if (device.has_kernel(norm + "_forward") && device.has_kernel(residual) &&
      device.has_kernel(activation + "_forward")) {
    forward = 2 * device.kernel_s(norm + "_forward", rows, n.hidden) + 2 * device.kernel_s(residual, rows, n.hidden) +
              device.kernel_s(activation + "_forward", n.tokens, n.inner);
    backward = 2 * device.kernel_s(norm + "_backward", rows, n.hidden) +
               2 * device.kernel_s(residual + "_backward", rows, n.hidden) +
               device.kernel_s(activation + "_backward", n.tokens, n.inner);
    if (s.biases) {
      backward += device.kernel_s("bias_backward", n.tokens, n.query + 2 * n.kv) +
                  device.kernel_s("bias_backward", n.tokens, n.gated * n.inner);
    }
    if (s.rotary) {
      const double rotation = device.kernel_s("rotary", n.tokens, n.query) + device.kernel_s("rotary", n.tokens, n.kv);
      forward += rotation;
      backward += rotation;
    }
  } else {
    const double e = device.element_bytes();
    const double mask = s.hidden_dropout ? 1 : 0;
    const double whole = rows * n.hidden;
    const double scale = p.software.elementwise.value;
    // Norm: in, out. Residual: branch, residual, out, mask. Activation: in(s), out. Context copied once.
    const double down =
        2 * (2 * e + 3 * e + mask) * whole + (n.gated + 1) * e * n.tokens * n.inner + 2 * e * n.tokens * n.query;
    // Norm: dy, x, dx, and again dy, x for its weights; residual: dy, mask, dx, bias, and the two gradients' sum.
    const double up = 2 * (5 * e + 3 * e + mask + 3 * e) * whole + (2 * n.gated + 2) * e * n.tokens * n.inner +
                      3 * e * n.tokens * (n.query + 2 * n.kv);
    const double rotation = s.rotary ? 2 * e * n.tokens * (n.query + n.kv) : 0;
    forward = scale * (down + rotation) / device.memory_bytes_per_s + 6 * device.kernel_floor_s;
    backward = scale * (up + rotation) / device.memory_bytes_per_s + 12 * device.kernel_floor_s;
  }
  pass.forward.elementwise_s += forward;
  pass.backward_input.elementwise_s += backward;
}

/// Collectives of the tp group in one layer.
void add_tensor(const Pricing& p, const StepShape& s, PassTimes& pass) {
  if (s.tensor <= 1) return;
  const GroupPlace place = tensor_place(p, s);
  const double bytes = p.device.element_bytes() * static_cast<double>(s.tokens()) * static_cast<double>(s.hidden);
  const TensorOverlap overlap = p.software.tensor_overlap;
  const double hidden_share = overlap == TensorOverlap::Pipelined ? 0.75 : 0;  // of each transfer, beside its GEMM
  const auto collective_s = [&](Operation operation) {
    return p.software.collective_s.value + p.collectives.time_s(operation, place, bytes);
  };
  double sum_s = s.sequence_parallel ? collective_s(Operation::ReduceScatter) + collective_s(Operation::AllGather)
                                     : collective_s(Operation::AllReduce);
  const double again_s = s.sequence_parallel ? collective_s(Operation::AllGather) : 0;
  pass.forward.tensor_s += 2 * sum_s * (1 - hidden_share);
  // Backward: with overlap the sum over tp of a column-parallel layer runs beside its weight gradient.
  const double slow = 1 + p.collectives.contention(place);
  double exposed = 2 * sum_s;
  double gathers = 2 * again_s;
  if (overlap != TensorOverlap::None) {
    const double beside = s.sequence_parallel ? collective_s(Operation::ReduceScatter) : sum_s;
    const double covered = std::min(2 * beside, pass.backward_weight.gemm_s / slow);
    exposed -= covered;
    pass.backward_weight.gemm_s += covered * (slow - 1);
    gathers = std::max(0.0, gathers - pass.backward_input.gemm_s / slow);
    exposed *= 1 - hidden_share;
  }
  pass.backward_input.tensor_s += exposed;
  pass.backward_weight.tensor_s += gathers;
}

}  // namespace

Pricing::Pricing(const bench::Hardware& hardware, const Software& program, DType dtype)
    : device(hardware, dtype),
      collectives(hardware),
      software(program),
      devices_per_node(hardware.links.front().ranks > 0 ? hardware.links.front().ranks
                                                        : std::max(1, hardware.devices_per_node)),
      memory_nominal(hardware.memory_bytes_per_s.value) {
  const auto measured = hardware.constants.find("launch_s");
  if (software.launch_s.value == 0 && measured != hardware.constants.end()) software.launch_s = measured->second;
}

GroupPlace tensor_place(const Pricing& p, const StepShape& s) {
  return place_of(s.tensor, 1, p.devices_per_node, s.ranks());
}

GroupPlace data_place(const Pricing& p, const StepShape& s) {
  const int stride = s.order == comm::RankOrder::TpCpDpPp ? s.tensor : s.tensor * s.pipeline;
  return place_of(s.data, stride, p.devices_per_node, s.ranks());
}

GroupPlace shard_place(const Pricing& p, const StepShape& s) {
  const int stride = s.order == comm::RankOrder::TpCpDpPp ? s.tensor : s.tensor * s.pipeline;
  return place_of(std::min(s.shard_group, s.data), stride, p.devices_per_node, s.ranks());
}

GroupPlace state_place(const Pricing& p, const StepShape& s) {
  return s.states == parallel::StateSharding::AllOfData ? data_place(p, s) : shard_place(p, s);
}

PassTimes layer_times(const Pricing& p, const StepShape& s) {
  const Dims n(s);
  PassTimes pass;
  add_linear(p.device, n.tokens, n.hidden, n.query + 2 * n.kv, pass);
  add_linear(p.device, n.tokens, n.query, n.hidden, pass);
  add_linear(p.device, n.tokens, n.hidden, n.gated * n.inner, pass);
  add_linear(p.device, n.tokens, n.inner, n.hidden, pass);
  double core_s = 0;
  if (p.software.attention == AttentionKernel::Unfused) {
    add_unfused_attention(p, s, pass, core_s);
  } else {
    add_flash_attention(p, s, pass, core_s);
  }
  add_passes(p, s, n, pass);
  add_tensor(p, s, pass);
  if (s.recompute == RecomputeGranularity::Full) pass.recompute = pass.forward;
  if (s.recompute == RecomputeGranularity::Selective) pass.recompute.attention_s = core_s;
  pass.host_forward_s += p.software.forward_launches * p.software.launch_s.value;
  pass.host_backward_s += p.software.backward_launches * p.software.launch_s.value;
  return pass;
}

PassTimes embedding_times(const Pricing& p, const StepShape& s) {
  PassTimes pass;
  const double whole = static_cast<double>(s.tokens()) * static_cast<double>(s.hidden);
  const double e = p.device.element_bytes();
  if (p.device.has_kernel("embedding_forward")) {
    pass.forward.elementwise_s =
        p.device.kernel_s("embedding_forward", static_cast<double>(s.tokens()), static_cast<double>(s.hidden));
    pass.backward_weight.elementwise_s =
        p.device.kernel_s("embedding_backward", static_cast<double>(s.tokens()), static_cast<double>(s.hidden));
  } else {
    pass.forward.elementwise_s = p.device.bytes_s((s.learned_positions ? 6 : 4) * e * whole);
    pass.backward_weight.elementwise_s = p.device.bytes_s((s.learned_positions ? 8 : 5) * e * whole);
  }
  if (s.tensor > 1) {
    const GroupPlace place = tensor_place(p, s);
    const auto sum = s.sequence_parallel ? Operation::ReduceScatter : Operation::AllReduce;
    pass.forward.tensor_s = p.collectives.time_s(sum, place, e * whole);
    if (s.sequence_parallel) {
      pass.backward_weight.tensor_s = p.collectives.time_s(Operation::AllGather, place, e * whole);
    }
  }
  return pass;
}

PassTimes head_times(const Pricing& p, const StepShape& s) {
  PassTimes pass;
  const auto tokens = static_cast<double>(s.tokens());
  const auto hidden = static_cast<double>(s.hidden);
  const double columns = static_cast<double>(s.vocab) / s.tensor;
  const double e = p.device.element_bytes();
  pass.forward.gemm_s = p.device.gemm_s({GemmLayout::TN, false, tokens, columns, hidden, true});
  pass.backward_input.gemm_s = p.device.gemm_s({GemmLayout::NN, false, tokens, hidden, columns, true});
  pass.backward_weight.gemm_s = p.device.gemm_s({GemmLayout::NT, true, columns, hidden, tokens, true});
  if (p.device.has_kernel("cross_entropy")) {
    pass.forward.elementwise_s = p.device.kernel_s("cross_entropy", tokens, columns);
    pass.backward_input.elementwise_s = p.device.kernel_s("cross_entropy_backward", tokens, columns);
  } else {
    pass.forward.elementwise_s = p.device.bytes_s(0.6 * p.software.logit_bytes.value * tokens * columns);
    pass.backward_input.elementwise_s = p.device.bytes_s(0.4 * p.software.logit_bytes.value * tokens * columns);
  }
  if (s.tensor > 1) {
    const GroupPlace place = tensor_place(p, s);
    const double bytes = e * tokens * hidden;
    if (s.sequence_parallel) pass.forward.tensor_s = p.collectives.time_s(Operation::AllGather, place, bytes);
    pass.forward.tensor_s += 3 * p.collectives.time_s(Operation::AllReduce, place, 4 * tokens);
    const auto sum = s.sequence_parallel ? Operation::ReduceScatter : Operation::AllReduce;
    pass.backward_input.tensor_s = p.collectives.time_s(sum, place, bytes);
    if (s.sequence_parallel) pass.backward_weight.tensor_s = p.collectives.time_s(Operation::AllGather, place, bytes);
  }
  return pass;
}

}  // namespace triax::plan

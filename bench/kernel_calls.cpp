#include "bench/kernel_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "kernels/discrete_device.h"

namespace triax::bench {
namespace {

using kernels::Accumulate;
using kernels::Transpose;

constexpr double kDropout = 0.1;

bool is_attention(const std::string& kernel) { return kernel.rfind("attention", 0) == 0; }

DType state_of(DType dtype) { return dtype == DType::Float64 ? DType::Float64 : DType::Float32; }

/// What a call is made of. Roles of operands are numbered as they are taken.
struct Maker {
  Operands& o;
  KernelPoint p;
  int64_t heads;

  kernels::Device& device() const { return o.device(); }
  Tensor hot(int role) const { return o.next(role, Reuse::Hot, p.dtype, p.rows, p.cols); }
  Tensor cold(int role) const { return o.next(role, Reuse::Cold, p.dtype, p.rows, p.cols); }
  Tensor cold(int role, int64_t cols) const { return o.next(role, Reuse::Cold, p.dtype, p.rows, cols); }
  /// A vector [n] that stays in the caches.
  Tensor vector(int role, DType dtype, int64_t n) const { return o.next(role, Reuse::Hot, dtype, 1, n).flat(); }
  Tensor statistic(int role) const { return vector(role, state_of(p.dtype), p.rows); }
  Tensor weight(int role) const { return vector(role, p.dtype, p.cols); }
  Tensor gradient(int role) const { return vector(role, state_of(p.dtype), p.cols); }
};

using Call = std::function<void()>;

Call norm(const Maker& m, bool rms, bool backward) {
  kernels::Device& d = m.device();
  if (!backward) {
    return [m, rms, &d] {
      const Tensor x = m.hot(0), y = m.cold(1);
      if (rms) return d.rms_norm_forward(x, m.weight(2), 1e-5, y, m.statistic(3));
      d.layer_norm_forward(x, m.weight(2), m.weight(4), 1e-5, y, m.statistic(3), m.statistic(5));
    };
  }
  return [m, rms, &d] {
    const Tensor dy = m.hot(0), x = m.cold(1), dx = m.hot(6);
    if (rms) {
      return d.rms_norm_backward(dy, x, m.weight(2), m.statistic(3), dx, Accumulate::Yes, m.gradient(4));
    }
    d.layer_norm_backward(dy, x, m.weight(2), m.statistic(3), m.statistic(5), dx, Accumulate::Yes, m.gradient(4),
                          m.gradient(7));
  };
}

Call activation(const Maker& m, bool gated, bool backward) {
  kernels::Device& d = m.device();
  const int64_t wide = gated ? 2 * m.p.cols : m.p.cols;
  return [m, gated, backward, wide, &d] {
    const Tensor u = backward ? m.cold(0, wide) : m.o.next(0, Reuse::Hot, m.p.dtype, m.p.rows, wide);
    if (!backward) return gated ? d.swiglu_forward(u, m.cold(1)) : d.gelu_forward(u, m.cold(1));
    const Tensor dy = m.hot(2), du = m.cold(3, wide);
    gated ? d.swiglu_backward(dy, u, du) : d.gelu_backward(dy, u, du);
  };
}

Call residual(const Maker& m, bool drop, bool backward) {
  kernels::Device& d = m.device();
  const kernels::Dropout dropout{drop ? kDropout : 0, 1, 1, m.o.step()};
  const kernels::TokenIndex index = m.o.index(m.p.rows, 1);
  if (backward) {
    return [m, dropout, index, &d] { d.bias_dropout_backward(m.hot(0), dropout, index, m.cold(1), m.gradient(2)); };
  }
  return [m, dropout, index, &d] {
    const Tensor x = m.hot(0);
    d.bias_dropout_add_forward(x, m.weight(2), m.cold(1), dropout, index, x);
  };
}

Call attention(const Maker& m, bool drop, bool backward) {
  kernels::Device& d = m.device();
  const int64_t positions = positions_of(m.p);
  kernels::Attention a;
  a.batch = 1;
  a.seq_length = positions;
  a.heads = a.kv_heads = m.heads;
  a.head_dim = m.p.cols;
  a.scale = 1 / std::sqrt(static_cast<double>(m.p.cols));
  if (drop) {
    a.dropout = {kDropout, 1, 1, m.o.step()};
    a.index = m.o.index(positions, 1);
  }
  const int64_t width = m.heads * m.p.cols;
  const auto slab = [m, positions](int role, int64_t cols) {
    return m.o.next(role, Reuse::Cold, m.p.dtype, positions, cols);
  };
  return [m, a, backward, positions, width, slab, &d] {
    const Tensor qkv = slab(0, 3 * width), out = slab(1, width);
    const Tensor q = qkv.col_slice(0, width), k = qkv.col_slice(width, 2 * width);
    const Tensor v = qkv.col_slice(2 * width, 3 * width);
    const Tensor lse = m.o.next(2, Reuse::Cold, state_of(m.p.dtype), m.heads, positions);
    if (!backward) return d.attention_forward(a, q, k, v, out, lse);
    const Tensor dqkv = slab(3, 3 * width);
    const Tensor dout = m.o.next(4, Reuse::Hot, m.p.dtype, positions, width);
    d.attention_backward(a, dout, q, k, v, out, lse, dqkv.col_slice(0, width), dqkv.col_slice(width, 2 * width),
                         dqkv.col_slice(2 * width, 3 * width));
  };
}

Call embedding(const Maker& m, bool backward) {
  kernels::Device& d = m.device();
  // A table of at most the cold ring: rows are drawn from all of it.
  const int64_t table =
      std::max<int64_t>(64, (int64_t{32} << 20) / (m.p.cols * static_cast<int64_t>(size_of(m.p.dtype))));
  const Tensor ids = m.o.ids(m.p.rows, table);
  return [m, backward, table, ids, &d] {
    const DType dtype = backward ? state_of(m.p.dtype) : m.p.dtype;
    const Tensor rows = m.o.next(0, Reuse::Cold, dtype, table, m.p.cols);
    if (backward) return d.embedding_backward(ids, m.hot(1), 0, rows);
    d.embedding_forward(ids, rows, 0, Accumulate::No, m.cold(1));
  };
}

Call cross_entropy(const Maker& m, bool backward) {
  kernels::Device& d = m.device();
  const Tensor target = m.o.ids(m.p.rows, m.p.cols);
  return [m, backward, target, &d] {
    const Tensor logits = m.cold(0);
    const Tensor row_max = m.statistic(1), sum = m.statistic(2), chosen = m.statistic(3);
    if (backward) {
      return d.cross_entropy_backward(logits, 0, m.p.cols, target, row_max, sum, {}, 1e-3, m.o.step());
    }
    d.cross_entropy_max(logits, m.p.cols, row_max);
    d.cross_entropy_sum(logits, 0, m.p.cols, target, row_max, sum, chosen);
    d.cross_entropy_loss(row_max, sum, chosen, {}, m.vector(4, DType::Float64, 1));
  };
}

Call optimizer(const Maker& m, bool adam) {
  kernels::Device& d = m.device();
  const DType state = state_of(m.p.dtype);
  const auto flat = [m](int role, DType dtype) { return m.o.next(role, Reuse::Cold, dtype, 1, m.p.cols).flat(); };
  return [m, state, flat, adam, &d] {
    const Tensor copy = state == m.p.dtype ? Tensor() : flat(4, m.p.dtype);
    if (!adam) return d.sgd({flat(0, state), flat(1, state), flat(3, state), copy, 0.9, 0.01}, m.o.step());
    kernels::AdamW args;
    args.master = flat(0, state);
    args.exp_avg = flat(1, state);
    args.exp_avg_sq = flat(2, state);
    args.grad = flat(3, state);
    args.param = copy;
    d.adamw(args, m.o.step());
  };
}

Call flat(const Maker& m) {
  kernels::Device& d = m.device();
  const std::string& name = m.p.kernel;
  const auto run = [m](int role) { return m.cold(role).flat(); };
  // A step zeroes its gradients and sums their squares: in the state type.
  const auto gradient = [m] { return m.o.next(0, Reuse::Cold, state_of(m.p.dtype), 1, m.p.cols).flat(); };
  if (name == "fill") return [gradient, &d] { d.fill(gradient(), 0.01); };
  if (name == "copy") return [run, &d] { d.copy(run(0), run(1)); };
  if (name == "add") return [run, &d] { d.add(run(0), run(1)); };
  if (name == "scale") return [run, &d] { d.scale(run(0), 1); };
  return [m, gradient, &d] { d.sum_of_squares(gradient(), m.vector(1, DType::Float64, 1)); };
}

Call rotary(const Maker& m) {
  kernels::Device& d = m.device();
  const int64_t head = std::min<int64_t>(m.p.cols, 64);
  const int64_t heads = std::max<int64_t>(1, m.p.cols / head);
  const Tensor position = m.o.index(m.p.rows, 1).position;
  return [m, head, heads, position, &d] {
    const DType table = state_of(m.p.dtype);
    const Tensor cos = m.o.next(1, Reuse::Hot, table, m.p.rows, head / 2);
    const Tensor sin = m.o.next(2, Reuse::Hot, table, m.p.rows, head / 2);
    d.rotary(m.hot(0), cos, sin, position, heads, kernels::Device::RotaryDirection::Forward);
  };
}

Call bias_backward(const Maker& m) {
  return [m] { m.device().bias_backward(m.hot(0), m.gradient(1)); };
}

using Make = std::function<Call(const Maker&)>;

/// Names in the order of hw.json, with what makes the call.
const std::vector<std::pair<std::string, Make>>& makers() {
  static const std::vector<std::pair<std::string, Make>> kMakers{
      {"layer_norm_forward", [](const Maker& m) { return norm(m, false, false); }},
      {"layer_norm_backward", [](const Maker& m) { return norm(m, false, true); }},
      {"rms_norm_forward", [](const Maker& m) { return norm(m, true, false); }},
      {"rms_norm_backward", [](const Maker& m) { return norm(m, true, true); }},
      {"gelu_forward", [](const Maker& m) { return activation(m, false, false); }},
      {"gelu_backward", [](const Maker& m) { return activation(m, false, true); }},
      {"swiglu_forward", [](const Maker& m) { return activation(m, true, false); }},
      {"swiglu_backward", [](const Maker& m) { return activation(m, true, true); }},
      {"residual", [](const Maker& m) { return residual(m, false, false); }},
      {"residual_backward", [](const Maker& m) { return residual(m, false, true); }},
      {"dropout", [](const Maker& m) { return residual(m, true, false); }},
      {"dropout_backward", [](const Maker& m) { return residual(m, true, true); }},
      {"bias_backward", bias_backward},
      {"rotary", rotary},
      {"attention_forward", [](const Maker& m) { return attention(m, false, false); }},
      {"attention_backward", [](const Maker& m) { return attention(m, false, true); }},
      {"attention_dropout_forward", [](const Maker& m) { return attention(m, true, false); }},
      {"attention_dropout_backward", [](const Maker& m) { return attention(m, true, true); }},
      {"embedding_forward", [](const Maker& m) { return embedding(m, false); }},
      {"embedding_backward", [](const Maker& m) { return embedding(m, true); }},
      {"cross_entropy", [](const Maker& m) { return cross_entropy(m, false); }},
      {"cross_entropy_backward", [](const Maker& m) { return cross_entropy(m, true); }},
      {"adamw", [](const Maker& m) { return optimizer(m, true); }},
      {"sgd", [](const Maker& m) { return optimizer(m, false); }},
      {"sum_of_squares", flat},
      {"fill", flat},
      {"copy", flat},
      {"add", flat},
      {"scale", flat}};
  return kMakers;
}

/// Elements read and written per element of [rows, cols], of the dtype and of the state dtype.
struct Traffic {
  double own = 0, state = 0;
};

Traffic traffic_of(const std::string& kernel) {
  static const std::map<std::string, Traffic> kTraffic{{"layer_norm_forward", {2, 0}},
                                                       {"layer_norm_backward", {4, 0}},
                                                       {"rms_norm_forward", {2, 0}},
                                                       {"rms_norm_backward", {4, 0}},
                                                       {"gelu_forward", {2, 0}},
                                                       {"gelu_backward", {3, 0}},
                                                       {"swiglu_forward", {3, 0}},
                                                       {"swiglu_backward", {5, 0}},
                                                       {"residual", {3, 0}},
                                                       {"residual_backward", {2, 0}},
                                                       {"dropout", {3, 0}},
                                                       {"dropout_backward", {2, 0}},
                                                       {"bias_backward", {1, 0}},
                                                       {"rotary", {2, 0}},
                                                       {"embedding_forward", {2, 0}},
                                                       {"embedding_backward", {1, 2}},
                                                       {"cross_entropy", {2, 0}},
                                                       {"cross_entropy_backward", {2, 0}},
                                                       {"adamw", {0, 7}},
                                                       {"sgd", {0, 5}},
                                                       {"sum_of_squares", {0, 1}},
                                                       {"fill", {0, 1}},
                                                       {"copy", {2, 0}},
                                                       {"add", {3, 0}},
                                                       {"scale", {2, 0}}};
  const auto found = kTraffic.find(kernel);
  return found == kTraffic.end() ? Traffic() : found->second;
}

}  // namespace

const std::vector<std::string>& kernel_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const auto& [name, make] : makers()) names.push_back(name);
    return names;
  }();
  return kNames;
}

std::function<void()> gemm_call(Operands& o, const GemmPoint& p) {
  const DType out = p.accumulate ? state_of(p.dtype) : p.dtype;
  const Accumulate accumulate = p.accumulate ? Accumulate::Yes : Accumulate::No;
  kernels::Device& d = o.device();
  return [&o, &d, p, out, accumulate] {
    kernels::Gemm g;
    g.accumulate = accumulate;
    // The op before has just made A (an activation or its gradient); B is a weight, or was saved by a forward pass.
    const bool turned_a = p.layout == GemmLayout::NT, turned_b = p.layout == GemmLayout::TN;
    g.a = turned_a ? o.next(0, Reuse::Hot, p.dtype, p.k, p.m) : o.next(0, Reuse::Hot, p.dtype, p.m, p.k);
    g.b = turned_b ? o.next(1, Reuse::Cold, p.dtype, p.n, p.k) : o.next(1, Reuse::Cold, p.dtype, p.k, p.n);
    g.transpose_a = turned_a ? Transpose::Yes : Transpose::No;
    g.transpose_b = turned_b ? Transpose::Yes : Transpose::No;
    g.c = o.next(2, Reuse::Cold, out, p.m, p.n);
    d.gemm(g);
    if (d.on_host()) d.synchronize();
  };
}

std::function<void()> kernel_call(Operands& operands, const KernelPoint& shape, int64_t heads) {
  for (const auto& [name, make] : makers()) {
    if (name != shape.kernel) continue;
    kernels::Device& device = operands.device();
    return [call = make({operands, shape, heads}), &device] {
      call();
      if (device.on_host()) device.synchronize();
    };
  }
  throw ConfigError(fmt::format("there is no kernel '{}'", shape.kernel));
}

int64_t positions_of(const KernelPoint& shape) { return std::llround(std::sqrt(static_cast<double>(shape.rows))); }

int64_t heads_of_call(const KernelPoint& shape, const kernels::Device& device) {
  if (!is_attention(shape.kernel)) return 1;
  if (const auto* gpu = dynamic_cast<const kernels::DiscreteDevice*>(&device)) {
    // Two tiles of 128 queries for each multiprocessor, as heads and samples of a micro-batch give.
    return std::clamp<int64_t>(2 * gpu->facts().multiprocessors * 128 / positions_of(shape), 1, 256);
  }
  return std::clamp<int64_t>((int64_t{1} << 18) / (positions_of(shape) * shape.cols), 1, 8);
}

double flops_of(const GemmPoint& p) {
  return 2 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}

double flops_of(const KernelPoint& p) {
  if (!is_attention(p.kernel)) return 0;
  const auto s = static_cast<double>(positions_of(p));
  const bool backward = p.kernel.find("backward") != std::string::npos;
  return (backward ? 10 : 4) * static_cast<double>(p.cols) * s * (s + 1) / 2;
}

double bytes_of(const KernelPoint& p) {
  const auto own = static_cast<double>(size_of(p.dtype)), state = static_cast<double>(size_of(state_of(p.dtype)));
  const double elements = static_cast<double>(p.rows) * static_cast<double>(p.cols);
  if (is_attention(p.kernel)) {
    const double slab = static_cast<double>(positions_of(p)) * static_cast<double>(p.cols) * own;
    return (p.kernel.find("backward") != std::string::npos ? 8 : 4) * slab;
  }
  const Traffic traffic = traffic_of(p.kernel);
  const bool copies = (p.kernel == "adamw" || p.kernel == "sgd") && own < state;
  return elements * (traffic.own * own + traffic.state * state + (copies ? own : 0));
}

double bytes_of(const GemmPoint& p) {
  const auto own = static_cast<double>(size_of(p.dtype));
  const auto m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const double out = p.accumulate ? 2 * static_cast<double>(size_of(state_of(p.dtype))) : own;
  return own * k * (m + n) + out * m * n;
}

}  // namespace triax::bench

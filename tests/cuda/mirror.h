// Runs operations of a device with memory of its own on host tensors, so that tests can be written as for the CPU:
// every tensor of a call is copied there, the operation runs, what it wrote comes back. Bytes between and behind the
// rows must be as before. Tensors keep their address modulo 256, so that unaligned views are unaligned there too.
#pragma once

#include <deque>

#include "kernels/discrete_device.h"

namespace triax::kernels::testing {

/// The tensors of one call.
class MirroredCall {
 public:
  explicit MirroredCall(DiscreteDevice& device, Arena& arena) : device_(device), arena_(arena) {}
  /// The device's copy of a host tensor; the same one when a call names it twice. Empty stays empty.
  Tensor operator()(const Tensor& host);
  const StepBlock* operator()(const StepBlock* host);
  Dropout operator()(const Dropout& dropout);
  TokenIndex operator()(const TokenIndex& index) { return {(*this)(index.sample), (*this)(index.position)}; }
  /// Fetches every tensor; std::runtime_error when something else than its elements changed.
  void finish();

 private:
  struct Entry {
    Tensor host, device;
    Buffer memory;
    std::vector<char> image;  // all bytes of `memory` as sent
    size_t offset = 0;
  };
  DiscreteDevice& device_;
  Arena& arena_;
  std::deque<Entry> entries_;
  std::deque<Buffer> steps_;
};

class MirroredDevice final : public Device {
 public:
  explicit MirroredDevice(DiscreteDevice& device) : device_(device), arena_(device.memory()) {}
  std::string name() const override { return device_.name(); }
  MemoryProvider& memory() override { return heap_; }
  void synchronize() override { device_.synchronize(); }
  DiscreteDevice& device() { return device_; }

  void gemm(const Gemm& g) override {
    run([&](auto& on) { device_.gemm(there(on, g)); });
  }
  void gemm_gelu(const Gemm& g, Tensor y) override {
    run([&](auto& on) { device_.gemm_gelu(there(on, g), on(y)); });
  }
  void gemm_gelu_backward(const Gemm& g, Tensor x) override {
    run([&](auto& on) { device_.gemm_gelu_backward(there(on, g), on(x)); });
  }
  void gemm_bias_backward(const Gemm& g, Tensor dbias) override {
    run([&](auto& on) { device_.gemm_bias_backward(there(on, g), on(dbias)); });
  }
  void bias_backward(Tensor dy, Tensor dbias) override {
    run([&](auto& on) { device_.bias_backward(on(dy), on(dbias)); });
  }
  void layer_norm_forward(Tensor x, Tensor gamma, Tensor beta, double eps, Tensor y, Tensor mean,
                          Tensor rstd) override {
    run([&](auto& on) { device_.layer_norm_forward(on(x), on(gamma), on(beta), eps, on(y), on(mean), on(rstd)); });
  }
  void layer_norm_backward(Tensor dy, Tensor x, Tensor gamma, Tensor mean, Tensor rstd, Tensor dx,
                           Accumulate accumulate_dx, Tensor dgamma, Tensor dbeta) override {
    run([&](auto& on) {
      device_.layer_norm_backward(on(dy), on(x), on(gamma), on(mean), on(rstd), on(dx), accumulate_dx, on(dgamma),
                                  on(dbeta));
    });
  }
  void rms_norm_forward(Tensor x, Tensor gamma, double eps, Tensor y, Tensor rstd) override {
    run([&](auto& on) { device_.rms_norm_forward(on(x), on(gamma), eps, on(y), on(rstd)); });
  }
  void rms_norm_backward(Tensor dy, Tensor x, Tensor gamma, Tensor rstd, Tensor dx, Accumulate accumulate_dx,
                         Tensor dgamma) override {
    run([&](auto& on) {
      device_.rms_norm_backward(on(dy), on(x), on(gamma), on(rstd), on(dx), accumulate_dx, on(dgamma));
    });
  }
  void rotary(Tensor x, Tensor cos, Tensor sin, Tensor position, int64_t heads, RotaryDirection direction) override {
    run([&](auto& on) { device_.rotary(on(x), on(cos), on(sin), on(position), heads, direction); });
  }
  void gelu_forward(Tensor x, Tensor y) override {
    run([&](auto& on) { device_.gelu_forward(on(x), on(y)); });
  }
  void gelu_backward(Tensor dy, Tensor x, Tensor dx) override {
    run([&](auto& on) { device_.gelu_backward(on(dy), on(x), on(dx)); });
  }
  void swiglu_forward(Tensor x, Tensor y) override {
    run([&](auto& on) { device_.swiglu_forward(on(x), on(y)); });
  }
  void swiglu_backward(Tensor dy, Tensor x, Tensor dx) override {
    run([&](auto& on) { device_.swiglu_backward(on(dy), on(x), on(dx)); });
  }
  void bias_dropout_add_forward(Tensor x, Tensor bias, Tensor residual, const Dropout& dropout, const TokenIndex& index,
                                Tensor y) override {
    run([&](auto& on) {
      device_.bias_dropout_add_forward(on(x), on(bias), on(residual), on(dropout), on(index), on(y));
    });
  }
  void bias_dropout_backward(Tensor dy, const Dropout& dropout, const TokenIndex& index, Tensor dx,
                             Tensor dbias) override {
    run([&](auto& on) { device_.bias_dropout_backward(on(dy), on(dropout), on(index), on(dx), on(dbias)); });
  }
  void attention_forward(const Attention& args, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse) override {
    run([&](auto& on) { device_.attention_forward(there(on, args), on(q), on(k), on(v), on(o), on(lse)); });
  }
  void attention_backward(const Attention& args, Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse,
                          Tensor dq, Tensor dk, Tensor dv) override {
    run([&](auto& on) {
      device_.attention_backward(there(on, args), on(dout), on(q), on(k), on(v), on(o), on(lse), on(dq), on(dk),
                                 on(dv));
    });
  }
  void embedding_forward(Tensor token, Tensor table, int64_t first, Accumulate accumulate, Tensor y) override {
    run([&](auto& on) { device_.embedding_forward(on(token), on(table), first, accumulate, on(y)); });
  }
  void embedding_backward(Tensor token, Tensor dy, int64_t first, Tensor dtable) override {
    run([&](auto& on) { device_.embedding_backward(on(token), on(dy), first, on(dtable)); });
  }
  void cross_entropy_max(Tensor logits, int64_t valid, Tensor row_max) override {
    run([&](auto& on) { device_.cross_entropy_max(on(logits), valid, on(row_max)); });
  }
  void cross_entropy_sum(Tensor logits, int64_t first, int64_t valid, Tensor target, Tensor row_max, Tensor sum_exp,
                         Tensor target_logit) override {
    run([&](auto& on) {
      device_.cross_entropy_sum(on(logits), first, valid, on(target), on(row_max), on(sum_exp), on(target_logit));
    });
  }
  void cross_entropy_loss(Tensor row_max, Tensor sum_exp, Tensor target_logit, Tensor mask, Tensor loss_sum) override {
    run([&](auto& on) {
      device_.cross_entropy_loss(on(row_max), on(sum_exp), on(target_logit), on(mask), on(loss_sum));
    });
  }
  void cross_entropy_backward(Tensor logits, int64_t first, int64_t valid, Tensor target, Tensor row_max,
                              Tensor sum_exp, Tensor mask, double seed_factor, const StepBlock* step) override {
    run([&](auto& on) {
      device_.cross_entropy_backward(on(logits), first, valid, on(target), on(row_max), on(sum_exp), on(mask),
                                     seed_factor, on(step));
    });
  }
  void fill(Tensor x, double value) override {
    run([&](auto& on) { device_.fill(on(x), value); });
  }
  void copy(Tensor x, Tensor y) override {
    run([&](auto& on) { device_.copy(on(x), on(y)); });
  }
  void add(Tensor x, Tensor y) override {
    run([&](auto& on) { device_.add(on(x), on(y)); });
  }
  void scale(Tensor x, double factor) override {
    run([&](auto& on) { device_.scale(on(x), factor); });
  }
  void sum_of_squares(Tensor x, Tensor out) override {
    run([&](auto& on) { device_.sum_of_squares(on(x), on(out)); });
  }
  void count_nonfinite(Tensor x, Tensor out) override {
    run([&](auto& on) { device_.count_nonfinite(on(x), on(out)); });
  }
  void adamw(const AdamW& a, const StepBlock* step) override {
    run([&](auto& on) {
      AdamW there = a;
      there.master = on(a.master), there.exp_avg = on(a.exp_avg), there.exp_avg_sq = on(a.exp_avg_sq);
      there.grad = on(a.grad), there.param = on(a.param);
      device_.adamw(there, on(step));
    });
  }
  void adamw_many(std::span<const AdamW> ranges, const StepBlock* step) override {
    run([&](auto& on) {
      std::vector<AdamW> there(ranges.begin(), ranges.end());
      for (AdamW& a : there) {
        a.master = on(a.master), a.exp_avg = on(a.exp_avg), a.exp_avg_sq = on(a.exp_avg_sq);
        a.grad = on(a.grad), a.param = on(a.param);
      }
      device_.adamw_many(there, on(step));
    });
  }
  void sgd(const Sgd& a, const StepBlock* step) override {
    run([&](auto& on) {
      Sgd there = a;
      there.master = on(a.master), there.momentum_buffer = on(a.momentum_buffer);
      there.grad = on(a.grad), there.param = on(a.param);
      device_.sgd(there, on(step));
    });
  }

 private:
  template <class F>
  void run(F&& operation) {
    MirroredCall call(device_, arena_);
    operation(call);
    call.finish();
  }
  static Gemm there(MirroredCall& on, const Gemm& g) {
    Gemm moved = g;
    moved.a = on(g.a), moved.b = on(g.b), moved.c = on(g.c), moved.bias = on(g.bias);
    moved.fp8_a.scale = on(g.fp8_a.scale), moved.fp8_a.amax = on(g.fp8_a.amax);
    moved.fp8_b.scale = on(g.fp8_b.scale), moved.fp8_b.amax = on(g.fp8_b.amax);
    return moved;
  }
  static Attention there(MirroredCall& on, const Attention& args) {
    Attention moved = args;
    moved.dropout = on(args.dropout);
    if (args.dropout.p > 0) moved.index = on(args.index);
    return moved;
  }

  DiscreteDevice& device_;
  Arena arena_;
  HeapProvider heap_;
};

}  // namespace triax::kernels::testing

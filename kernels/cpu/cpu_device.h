// The CPU device: checks shapes, splits rows over threads, and calls the kernels of kernel_table.h or a GEMM library.
// The members are defined in device_*.cpp by subject.
#pragma once

#include <memory>
#include <string>

#include "base/memory.h"
#include "kernels/cpu/cpu_compression.h"
#include "kernels/cpu/dnnl_gemm.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/threads.h"
#include "kernels/device.h"

namespace triax::kernels {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options);
  std::string name() const override { return "cpu"; }
  MemoryProvider& memory() override { return heap_; }
  void synchronize() override {}
  /// Scratch of kernels and GEMM library (category Workspace).
  const Arena& workspace() const { return workspace_; }
  /// "avx512, 2 threads, fp32 and bf16 GEMM by oneDNN 2.6.3, fp64 by OpenBLAS 0.3.21".
  std::string describe() const;

  void gemm(const Gemm& g) override;
  void bias_backward(Tensor dy, Tensor dbias) override;

  void layer_norm_forward(Tensor x, Tensor gamma, Tensor beta, double eps, Tensor y, Tensor mean, Tensor rstd) override;
  void layer_norm_backward(Tensor dy, Tensor x, Tensor gamma, Tensor mean, Tensor rstd, Tensor dx,
                           Accumulate accumulate_dx, Tensor dgamma, Tensor dbeta) override;
  void rms_norm_forward(Tensor x, Tensor gamma, double eps, Tensor y, Tensor rstd) override;
  void rms_norm_backward(Tensor dy, Tensor x, Tensor gamma, Tensor rstd, Tensor dx, Accumulate accumulate_dx,
                         Tensor dgamma) override;

  void rotary(Tensor x, Tensor cos, Tensor sin, Tensor position, int64_t heads, RotaryDirection direction) override;
  void gelu_forward(Tensor x, Tensor y) override;
  void gelu_backward(Tensor dy, Tensor x, Tensor dx) override;
  void swiglu_forward(Tensor x, Tensor y) override;
  void swiglu_backward(Tensor dy, Tensor x, Tensor dx) override;

  void bias_dropout_add_forward(Tensor x, Tensor bias, Tensor residual, const Dropout& dropout, const TokenIndex& index,
                                Tensor y) override;
  void bias_dropout_backward(Tensor dy, const Dropout& dropout, const TokenIndex& index, Tensor dx,
                             Tensor dbias) override;

  void attention_forward(const Attention& args, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse) override;
  void attention_backward(const Attention& args, Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse,
                          Tensor dq, Tensor dk, Tensor dv) override;

  void embedding_forward(Tensor token, Tensor table, int64_t first, Accumulate accumulate, Tensor y) override;
  void embedding_backward(Tensor token, Tensor dy, int64_t first, Tensor dtable) override;

  void cross_entropy_max(Tensor logits, int64_t valid, Tensor row_max) override;
  void cross_entropy_sum(Tensor logits, int64_t first, int64_t valid, Tensor target, Tensor row_max, Tensor sum_exp,
                         Tensor target_logit) override;
  void cross_entropy_loss(Tensor row_max, Tensor sum_exp, Tensor target_logit, Tensor mask, Tensor loss_sum) override;
  void cross_entropy_backward(Tensor logits, int64_t first, int64_t valid, Tensor target, Tensor row_max,
                              Tensor sum_exp, Tensor mask, double seed_factor, const StepBlock* step) override;

  void fill(Tensor x, double value) override;
  void copy(Tensor x, Tensor y) override;
  void add(Tensor x, Tensor y) override;
  void scale(Tensor x, double factor) override;

  void sum_of_squares(Tensor x, Tensor out) override;
  void count_nonfinite(Tensor x, Tensor out) override;
  void adamw(const AdamW& args, const StepBlock* step) override;
  void sgd(const Sgd& args, const StepBlock* step) override;
  Compression* compression() override { return &compression_; }

 private:
  /// Sums over blocks of rows whose number depends on the rows alone, then over the blocks in order:
  /// f(begin, end, partial[cols]) overwrites its partial; the total is added to `into` (cols elements each, may be
  /// empty), which lie side by side in the partial.
  template <class F>
  void sum_over_rows(int64_t rows, DType compute, std::initializer_list<Tensor> into, int64_t cols, F&& f);
  void norm_backward(const NormGradArgs& args, DType dtype, int64_t rows, Tensor dgamma, Tensor dbeta);
  /// By our own kernel where it is faster than the library; else returns false.
  bool gemm_packed(const Gemm& g);
  void gemm_with_blas(const Gemm& g);
  void gemm_converted(const Gemm& g);
  /// y += x, n elements.
  void add_run(Tensor x, Tensor y);
  const TypeKernels& kernels(DType dtype) const;

  Threads threads_;
  CpuCompression compression_;
  const KernelTable& table_;
  bool packed_bf16_;  ///< our own products of bf16 beat the library's here
  HeapProvider heap_;
  Arena workspace_;
  DnnlGemm dnnl_;
};

}  // namespace triax::kernels

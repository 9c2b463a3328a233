// The CUDA device: bf16, fp16 and fp32 on one GPU, everything in order on one stream. GEMM by cuBLASLt (gemm.cpp), the
// rest by the kernels of this folder, one operation in one file. Nothing here waits for the GPU but synchronize,
// upload, download and marked_s; no other operation reads device memory on the host, so what a run gives the device
// between two of those calls can be captured. Sums are taken in an order that depends on the shapes alone: two runs
// give the same bits, and so do GPUs of one kind.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/resources.h"
#include "kernels/cuda_loader.h"
#include "kernels/discrete_device.h"

namespace triax::kernels {

class CudaCompression;
class GemmPlans;
class GraphDevice;

class CudaDevice final : public DiscreteDevice {
 public:
  explicit CudaDevice(const CudaDeviceOptions& options);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  std::string name() const override { return "cuda"; }
  MemoryProvider& memory() override { return memory_; }
  void synchronize() override;
  MemoryProvider& staging_memory() override { return pinned_; }
  void upload(Tensor host, Tensor device) override;
  void download(Tensor device, Tensor host) override;
  void start_upload(Tensor host, Tensor device) override;
  void start_download(Tensor device, Tensor host) override;
  void start_copy_beside(Tensor device, Tensor host) override;
  void order_after_copies() override;
  void finish_copies() override;
  void begin_range(const char* name) override;
  void end_range() override;
  bool start_capture() override;
  void stop_capture() override;
  void upload_step(const StepBlock& block, StepBlock* device) override;
  void mark(size_t slot) override;
  LaunchRecorder* recorder() override;
  double marked_s(size_t slot) override;
  /// When the event came to pass, on the clock of now_s(), to 10 us. It must have.
  double host_time_s(const CudaEvent& event);
  std::string describe() const override { return description_; }
  GpuFacts facts() const override;
  std::string uuid() const override { return uuid_; }
  const Arena& workspace() const override { return workspace_; }
  void set_attention_kernels(AttentionKernels kernels) override { attention_kernels_ = kernels; }
  SpecialCalls special_calls() const override { return special_calls_; }
  int64_t timed_products() const override;
  /// Calls of CUDA and NCCL in the calling thread are about this GPU from here on, not about the first one.
  void use_in_this_thread() const noexcept { static_cast<void>(cudaSetDevice(ordinal_)); }
  /// Of operations that were launched without a call here.
  void count(const SpecialCalls& more);
  void set_watch(std::function<void()> watch) override { watch_ = std::move(watch); }
  /// What gives up the operations of this GPU that wait for others.
  GivesUp& gives_up() { return gives_up_; }
  /// For work of the caller, which comes after what the recorder has put off.
  cudaStream_t stream() {
    give_recorded();
    return stream_.get();
  }

  void gemm(const Gemm& g) override;
  void gemm_gelu(const Gemm& g, Tensor y) override;
  void gemm_gelu_backward(const Gemm& g, Tensor x) override;
  void gemm_bias_backward(const Gemm& g, Tensor dbias) override;
  std::string fp8_refusal() const override;
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
  void adamw_many(std::span<const AdamW> ranges, const StepBlock* step) override;
  void sgd(const Sgd& args, const StepBlock* step) override;
  Compression* compression() override;

 private:
  /// What the recorder has put off.
  void give_recorded();
  /// What is put off comes before, so that a capture finds all scratch memory free that its operations had before.
  Buffer scratch(DType dtype, int64_t elements) {
    give_recorded();
    return workspace_.allocate(dtype, elements, MemoryCategory::Workspace);
  }
  /// into[c] += sum over splits of partial[split, c], in order; partial is fp32 [splits, cols].
  void add_partials(Tensor partial, Tensor into);
  /// The rest of a norm's backward pass when rows are too long or not aligned for the fused kernel.
  void norm_weight_sums(Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor dgamma, Tensor dbeta);
  void norm_forward(const char* operation, Tensor x, Tensor gamma, Tensor beta, double eps, Tensor y, Tensor mean,
                    Tensor rstd);
  void norm_backward(const char* operation, Tensor dy, Tensor x, Tensor gamma, Tensor mean, Tensor rstd, Tensor dx,
                     Accumulate accumulate_dx, Tensor dgamma, Tensor dbeta);
  /// c (+)= op(a) op(b) + bias without tensor cores, any alignment: what cuBLASLt has no algorithm for.
  void gemm_plain(const Gemm& g);
  /// The same with operands rounded to fp8, by cuBLASLt.
  void gemm_fp8(const Gemm& g);
  /// c (+)= op(a) op(b) + bias by cuBLASLt; false, with nothing done, where it has no algorithm.
  bool multiply(const Gemm& g);
  /// x, or its transpose, as fp8 into y, contiguous.
  void cast_fp8(Tensor x, const Fp8Operand& how, Transpose transpose, Tensor y);
  /// c[r, :] += bias.
  void add_bias(Tensor bias, Tensor c);

  static void prepare_driver();
  void select_gpu(int ordinal);
  static int ordinal_of(const CudaDeviceOptions& options);
  /// A chunk of pinned memory for copies of memory that is not.
  Tensor bounce(DType dtype, int64_t elements);

  /// Whether attention on 16-bit types goes to the kernels for Hopper; counts the call.
  bool takes_hopper();

  std::string description_, uuid_, gpu_name_;
  GpuFacts facts_;
  int capability_ = 0;           ///< 90 is 9.0
  bool hopper_kernels_ = false;  ///< the GPU is a Hopper, and the module holds code for it
  AttentionKernels attention_kernels_ = AttentionKernels::Best;
  SpecialCalls special_calls_;
  CudaStream stream_;
  GivesUp gives_up_;
  CudaProvider memory_{&gives_up_};
  PinnedProvider pinned_{&gives_up_};
  Arena workspace_, bounce_arena_;
  Buffer bounce_;
  std::function<void()> watch_;
  std::vector<CudaEvent> marks_;
  CudaStream copy_stream_;  ///< of copies beside the work; made at the first
  CudaEvent copies_ready_, copies_done_;
  bool copies_pending_ = false;  ///< the compute stream is not ordered after them yet
  int ordinal_ = 0;
  CudaEvent origin_;  ///< its time on both clocks
  double origin_s_ = 0;
  std::unique_ptr<GemmPlans> plans_;
  std::unique_ptr<CudaCompression> compression_;
  std::unique_ptr<GraphDevice> graphs_;  ///< null until recorder() is asked for
};

}  // namespace triax::kernels

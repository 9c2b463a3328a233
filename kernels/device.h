// The math of one device behind one interface: what the parallel layers are built from. Ranks are unknown here.
// Letters: T = tokens of a micro-batch on this rank (s*b, row index = position * b + sample, Megatron's [s, b, h]),
// h hidden, f ffn, a heads, k KV heads, d head dimension, V vocabulary rows on this rank.
// Shapes are checked on entry (std::logic_error). "+=" accumulates, "=" overwrites.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/tensor.h"

namespace triax::kernels {

/// What changes from step to step. Lives in device memory and is read there by the kernels, so a captured step can be
/// replayed.
struct StepBlock {
  int64_t step = 0;    ///< optimizer steps tried so far, the dropout key of this one
  int64_t update = 1;  ///< 1-based count of updates with this one, Adam's bias-correction exponent
  double learning_rate = 0;
  double loss_scale = 1;  ///< multiplies the seed of the backward pass
  double grad_scale = 1;  ///< multiplies every gradient before the update: unscale / token count * clip
  int64_t skip = 0;       ///< 1: the update leaves weights and moments as they are (overflow)
};

enum class Transpose { No, Yes };
enum class Accumulate { No, Yes };

/// Where the factor of an fp8 operand comes from: what `scale` holds, or the largest |x| of this call and those since
/// `amax` was cleared, which are then written to `scale` first.
enum class Fp8Scaling { Delayed, Current };

/// How an operand x of a product becomes fp8 (kernels/cuda/fp8.cu): round(x * scale[0]) in `type`, what is beyond the
/// type's largest value becomes that; the product is multiplied by scale[1] = 1 / scale[0]. *amax = max(*amax, |x|).
struct Fp8Operand {
  DType type = DType::Float8E4M3;  ///< or Float8E5M2; not of both operands
  Tensor scale{};                  ///< fp32 [2]; empty: not rounded
  Tensor amax{};                   ///< fp32 [1]
  Fp8Scaling scaling = Fp8Scaling::Delayed;
  int margin = 0;  ///< Current: the largest value becomes the type's largest / 2^margin
};

/// C[m,n] (+)= op(A)[m,k] op(B)[k,n] + bias[n].
/// a and b share a dtype; c has it too, or fp32 for bf16/fp16 inputs. Sums in fp32 or wider. bias (may be empty) has
/// a's dtype. All three are matrices with contiguous rows and any row stride. With fp8 operands, both or none: a and b
/// are bf16 or fp16, m, n and k multiples of 16, rows begin at multiples of 16 bytes; where fp8_refusal() is empty.
struct Gemm {
  Tensor a, b, c;
  Transpose transpose_a = Transpose::No;
  Transpose transpose_b = Transpose::No;
  Accumulate accumulate = Accumulate::No;
  Tensor bias{};
  Fp8Operand fp8_a{}, fp8_b{};
};

/// Where an input token stands: keys of dropout and rotary angles. Part of the input, never computed from the row.
struct TokenIndex {
  Tensor sample;    ///< int64 [b]: global sample id of each column of the micro-batch
  Tensor position;  ///< int32 [T]: position in its sequence of each row of [s, b]; row r belongs to sample r % b
};

/// A dropout site. An element is kept when its uniform, drawn by Philox from (seed, step, site, sample, position, head,
/// element), is at least p; kept elements are scaled by 1/(1-p). p = 0 keeps all and draws nothing.
struct Dropout {
  double p = 0;
  uint64_t seed = 0;
  uint32_t site = 0;                ///< layer * 4 + place in the layer, unique in the model
  const StepBlock* step = nullptr;  ///< device memory
};

/// Causal attention of one micro-batch; heads on this rank only. Query head j reads KV head j * k / a.
struct Attention {
  int64_t batch = 0;       ///< b
  int64_t seq_length = 0;  ///< s; T = s * b
  int64_t heads = 0;       ///< a on this rank
  int64_t kv_heads = 0;    ///< k on this rank; divides a
  int64_t head_dim = 0;    ///< d
  int64_t head_begin = 0;  ///< global index of the first local head (dropout key)
  double scale = 0;        ///< usually 1 / sqrt(d)
  Dropout dropout;
  TokenIndex index;  ///< read only when dropout.p > 0
};

/// Adam with decoupled weight decay over one flat range; all tensors [n].
struct AdamW {
  Tensor master, exp_avg, exp_avg_sq;  ///< fp32 (or fp64)
  Tensor grad;                         ///< fp32 (or fp64)
  Tensor param;  ///< bf16/fp16 copy written round to nearest even; empty when master is the parameter
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};

/// SGD with momentum: buf = momentum * buf + g; w -= lr * (buf + weight_decay * w).
struct Sgd {
  Tensor master, momentum_buffer, grad, param;  ///< momentum_buffer may be empty when momentum is 0
  double momentum = 0, weight_decay = 0;
};

class Compression;
class LaunchRecorder;

class Device {
 public:
  virtual ~Device() = default;
  /// "cpu", "cuda".
  virtual std::string name() const = 0;
  virtual MemoryProvider& memory() = 0;
  /// Waits until all work given so far is done.
  virtual void synchronize() = 0;

  // ---- The host's side -------------------------------------------------------------------------------------------
  /// Whether the host reads and writes memory() as its own, and operations are done when they return.
  virtual bool on_host() const { return true; }
  /// Host memory that copies are fastest from and to: pinned where the device has memory of its own.
  virtual MemoryProvider& staging_memory();
  /// device = host: same dtype and shape, row strides free; ordered with the operations before and after. The host
  /// memory may be reused on return.
  virtual void upload(Tensor host, Tensor device);
  /// host = device, when all work given so far is done.
  virtual void download(Tensor device, Tensor host);
  /// As upload and download, but the host memory, of staging_memory(), is in use until synchronize(). Contiguous.
  virtual void start_upload(Tensor host, Tensor device) { upload(host, device); }
  virtual void start_download(Tensor device, Tensor host) { download(device, host); }
  /// As start_download, but beside the work that is given later, on a stream of its own: reads what the work given so
  /// far leaves there. The host memory is in use until finish_copies().
  virtual void start_copy_beside(Tensor device, Tensor host) { download(device, host); }
  /// Work given from here on comes after these copies: to be called before it overwrites what they read.
  virtual void order_after_copies() {}
  /// The host waits for them, on any thread.
  virtual void finish_copies() {}
  /// *device = block, ordered with the operations that read it. `device` is memory of memory().
  virtual void upload_step(const StepBlock& block, StepBlock* device) { *device = block; }
  /// Notes in `slot` when the work given so far is done, until the slot is used again.
  virtual void mark(size_t slot);
  /// That moment on the clock of now_s(); after synchronize().
  virtual double marked_s(size_t slot) { return marks_[slot]; }

  // ---- For profilers ---------------------------------------------------------------------------------------------
  /// From here to end_range() the profiler's picture of this thread carries the name; they nest.
  virtual void begin_range(const char*) {}
  virtual void end_range() {}
  /// Asks a profiler that waits for it to record. False: none can, on this device.
  virtual bool start_capture() { return false; }
  virtual void stop_capture() {}

  // ---- Recorded work -------------------------------------------------------------------------------------------
  /// Launches many operations as one (kernels/launch_recorder.h); null: this device launches nothing. It must be asked
  /// for before the operations that it is to record.
  virtual LaunchRecorder* recorder() { return nullptr; }

  // ---- Matrices -----------------------------------------------------------------------------------------------
  virtual void gemm(const Gemm& g) = 0;
  /// A product and what follows it, which a device may do in one pass: then on the sum before it is rounded to c's
  /// type. g.c = the product with its bias, y = gelu(g.c); [m, n] of one type, kept apart.
  virtual void gemm_gelu(const Gemm& g, Tensor y) {
    gemm(g);
    gelu_forward(g.c, y);
  }
  /// g.c = product * gelu'(x); x [m, n] of c's type.
  virtual void gemm_gelu_backward(const Gemm& g, Tensor x) {
    gemm(g);
    gelu_backward(g.c, x, g.c);
  }
  /// gemm, a weight gradient of a = dy [T, m], transposed; and dbias[m] += sum over rows of dy.
  virtual void gemm_bias_backward(const Gemm& g, Tensor dbias) {
    gemm(g);
    bias_backward(g.a, dbias);
  }
  /// Why this device has no products of fp8 operands; empty: it has.
  virtual std::string fp8_refusal() const { return "the " + name() + " device has no fp8 products"; }
  /// dbias[n] += sum over rows of dy[T, n]. dbias is fp32 or fp64.
  virtual void bias_backward(Tensor dy, Tensor dbias) = 0;

  // ---- Norms (x, y, dx: [T, h]; gamma, beta: [h]; mean, rstd: fp32 [T], fp64 under fp64) --------------------------
  /// y = (x - mean) * rstd * gamma + beta.
  virtual void layer_norm_forward(Tensor x, Tensor gamma, Tensor beta, double eps, Tensor y, Tensor mean,
                                  Tensor rstd) = 0;
  /// dx (+)= gradient of x; dgamma, dbeta (gradient dtype) += theirs; either may be empty.
  virtual void layer_norm_backward(Tensor dy, Tensor x, Tensor gamma, Tensor mean, Tensor rstd, Tensor dx,
                                   Accumulate accumulate_dx, Tensor dgamma, Tensor dbeta) = 0;
  /// y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps).
  virtual void rms_norm_forward(Tensor x, Tensor gamma, double eps, Tensor y, Tensor rstd) = 0;
  virtual void rms_norm_backward(Tensor dy, Tensor x, Tensor gamma, Tensor rstd, Tensor dx, Accumulate accumulate_dx,
                                 Tensor dgamma) = 0;

  // ---- Rotary embedding ---------------------------------------------------------------------------------------
  enum class RotaryDirection { Forward, Backward };
  /// In place on x[T, heads * d] (row stride free): the first 2 * table.cols() elements of each head are rotated,
  /// halves paired as in Llama/GPT-NeoX (i with i + rotary_dim / 2). cos, sin: fp32 (fp64) [positions, rotary_dim / 2].
  virtual void rotary(Tensor x, Tensor cos, Tensor sin, Tensor position, int64_t heads, RotaryDirection direction) = 0;

  // ---- Activations --------------------------------------------------------------------------------------------
  /// y = gelu(x), tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
  virtual void gelu_forward(Tensor x, Tensor y) = 0;
  /// dx may be dy.
  virtual void gelu_backward(Tensor dy, Tensor x, Tensor dx) = 0;
  /// y[T, f] = silu(x[:, 0:f]) * x[:, f:2f].
  virtual void swiglu_forward(Tensor x, Tensor y) = 0;
  virtual void swiglu_backward(Tensor dy, Tensor x, Tensor dx) = 0;

  // ---- Dropout and residual -----------------------------------------------------------------------------------
  /// y = residual + dropout(x + bias); bias [h] and residual [T, h] may be empty; y may be x or residual.
  virtual void bias_dropout_add_forward(Tensor x, Tensor bias, Tensor residual, const Dropout& dropout,
                                        const TokenIndex& index, Tensor y) = 0;
  /// dx = dropout mask applied to dy; dbias[h] (may be empty) += sum over rows of dx. dx may be dy.
  virtual void bias_dropout_backward(Tensor dy, const Dropout& dropout, const TokenIndex& index, Tensor dx,
                                     Tensor dbias) = 0;

  // ---- Attention: flash, never an s x s matrix (Dao 2022, arXiv 2205.14135, algorithms 1 and 4) ------------------
  /// o[T, a*d] and lse[a, T] (fp32, fp64 under fp64; lse[j, r] is log sum exp of row r for head j).
  /// q: [T, a*d], k, v: [T, k*d], each with any row stride.
  virtual void attention_forward(const Attention& args, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse) = 0;
  /// dq, dk, dv = gradients (shapes and strides as q, k, v).
  virtual void attention_backward(const Attention& args, Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o,
                                  Tensor lse, Tensor dq, Tensor dk, Tensor dv) = 0;

  // ---- Embedding ----------------------------------------------------------------------------------------------
  /// y[T, h] (+)= table[token - first, :] where first <= token < first + table.rows(), else zero. token: int32 [T].
  virtual void embedding_forward(Tensor token, Tensor table, int64_t first, Accumulate accumulate, Tensor y) = 0;
  /// dtable[token - first, :] += dy[T, h], rows in order of T (deterministic). dtable has the gradient dtype.
  virtual void embedding_backward(Tensor token, Tensor dy, int64_t first, Tensor dtable) = 0;

  // ---- Vocab-parallel cross-entropy (logits[T, V], this rank's ids are first .. first + valid - 1; columns from
  //      `valid` on are padding and take no part). Statistics are fp32 (fp64 under fp64) [T].
  //      --------------------------
  /// row_max[r] = max over valid columns.
  virtual void cross_entropy_max(Tensor logits, int64_t valid, Tensor row_max) = 0;
  /// sum_exp[r] = sum of exp(logit - row_max[r]); target_logit[r] = logit of the target if it is on this rank, else 0.
  virtual void cross_entropy_sum(Tensor logits, int64_t first, int64_t valid, Tensor target, Tensor row_max,
                                 Tensor sum_exp, Tensor target_logit) = 0;
  /// loss_sum[1] (fp64) += sum over rows of mask[r] * (log(sum_exp) + row_max - target_logit). mask: fp32 [T] or empty.
  virtual void cross_entropy_loss(Tensor row_max, Tensor sum_exp, Tensor target_logit, Tensor mask,
                                  Tensor loss_sum) = 0;
  /// In place: logits = (exp(logit - row_max) / sum_exp - [column is target]) * mask[r] * seed_factor *
  /// step->loss_scale; padding columns become 0.
  virtual void cross_entropy_backward(Tensor logits, int64_t first, int64_t valid, Tensor target, Tensor row_max,
                                      Tensor sum_exp, Tensor mask, double seed_factor, const StepBlock* step) = 0;

  // ---- Elementwise --------------------------------------------------------------------------------------------
  virtual void fill(Tensor x, double value) = 0;
  /// y = x, converted to y's dtype; row strides free.
  virtual void copy(Tensor x, Tensor y) = 0;
  /// y += x (any floating dtypes).
  virtual void add(Tensor x, Tensor y) = 0;
  virtual void scale(Tensor x, double factor) = 0;

  // ---- Reductions and optimizers over flat ranges -------------------------------------------------------------
  /// out[1] (fp64) += sum of squares, accumulated in fp64 in a fixed order (independent of the number of threads).
  virtual void sum_of_squares(Tensor x, Tensor out) = 0;
  /// out[1] (fp64) += number of elements that are infinite or NaN.
  virtual void count_nonfinite(Tensor x, Tensor out) = 0;
  /// g = grad * grad_scale; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w -= lr (mhat / (sqrt(vhat) + eps) + wd w).
  virtual void adamw(const AdamW& args, const StepBlock* step) = 0;
  /// The same over many ranges, whose elements are disjoint; a device with launches takes up to 64 in one.
  virtual void adamw_many(std::span<const AdamW> ranges, const StepBlock* step) {
    for (const AdamW& range : ranges) adamw(range, step);
  }
  virtual void sgd(const Sgd& args, const StepBlock* step) = 0;

  /// Codes of compressed gradients (kernels/compression.h); null on a device without them.
  virtual Compression* compression() { return nullptr; }

 private:
  HeapProvider host_heap_;
  std::vector<double> marks_;
};

/// Threads: of this process for the kernels and the GEMM library; 0 takes OMP_NUM_THREADS or the cores allowed.
struct CpuDeviceOptions {
  int threads = 0;
};
std::unique_ptr<Device> make_cpu_device(const CpuDeviceOptions& options);

}  // namespace triax::kernels

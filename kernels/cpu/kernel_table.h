// The serial kernels behind the CPU device: plain functions on raw rows, compiled once per instruction set
// (isa/*.cc) and reached through this table. Threads, shapes and memory are the device's business.
#pragma once

#include <cstdint>

#include "kernels/dropout_key.h"

namespace triax::kernels {

/// Rows of some element type, `stride` elements apart.
struct View {
  void* data = nullptr;
  int64_t stride = 0;
};

/// C[m, n] (+)= op(A) op(B) + bias.
struct GemmArgs {
  View a, b, c;
  int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
  bool wide_c;       ///< c has the compute type, else the element type
  const void* bias;  ///< [n], may be null
};

struct NormArgs {
  View x, y;
  const void *gamma, *beta;  ///< beta and mean are null for RMSNorm
  void *mean, *rstd;
  int64_t cols;
  double eps;
};

struct NormGradArgs {
  View dy, x, dx;
  const void *gamma, *mean, *rstd;  ///< mean is null for RMSNorm
  int64_t cols;
  bool accumulate_dx;
};

struct RotaryArgs {
  View x, cos, sin;
  const int32_t* position;
  int64_t heads, head_dim, half;  ///< half = rotary_dim / 2
  bool backward;
};

/// A dropout site in one step; samples and positions of the rows.
struct DropoutArgs {
  bool active = false;
  DropoutKey key{};
  uint32_t threshold = 0;
  double keep_scale = 1;              ///< 1 / (1 - p)
  const int64_t* sample = nullptr;    ///< [batch]
  const int32_t* position = nullptr;  ///< [rows]
  int64_t batch = 1;
};

struct BiasDropoutArgs {
  View x, residual, y;  ///< forward: y = residual + dropout(x + bias); backward: x = dy, y = dx
  const void* bias;
  int64_t cols;
  DropoutArgs dropout;
};

/// One micro-batch of attention; q, k, v, o and their gradients are [s * b, heads * d].
struct AttentionArgs {
  View q, k, v, o, dout, dq, dk, dv;
  void* lse;  ///< compute type [heads, s * b]
  int64_t batch, seq, heads, kv_heads, dim, head_begin;
  double scale;
  DropoutArgs dropout;
};

struct CrossEntropyArgs {
  View logits;
  int64_t cols, first, valid;
  const int32_t* target;
  void *row_max, *sum_exp, *target_logit;
  const float* mask;  ///< may be null
  double factor;
};

struct AdamWArgs {
  double beta1, beta2, eps, weight_decay, learning_rate, grad_scale;
  double inv_correction1, inv_sqrt_correction2;  ///< 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
};

struct SgdArgs {
  double momentum, weight_decay, learning_rate, grad_scale;
};

/// Kernels of one element type. "compute type" is double under double and float otherwise; void pointers have the
/// element type unless said. [begin, end) are rows.
struct TypeKernels {
  /// Bytes of scratch of a piece of at most `rows` rows.
  int64_t (*gemm_bytes)(const GemmArgs&, int64_t rows);
  /// Rows [m_begin, m_end) and columns [n_begin, n_end) of C.
  void (*gemm)(const GemmArgs&, int64_t m_begin, int64_t m_end, int64_t n_begin, int64_t n_end, void* scratch);
  void (*norm_forward)(const NormArgs&, int64_t begin, int64_t end);
  /// partial: compute type [2 * cols], overwritten with the sums for dgamma and dbeta of these rows; may be null.
  void (*norm_backward)(const NormGradArgs&, int64_t begin, int64_t end, void* partial);
  void (*rotary)(const RotaryArgs&, int64_t begin, int64_t end);
  void (*gelu_forward)(const void* x, void* y, int64_t n);
  void (*gelu_backward)(const void* dy, const void* x, void* dx, int64_t n);
  void (*swiglu_forward)(const void* x, void* y, int64_t cols);
  void (*swiglu_backward)(const void* dy, const void* x, void* dx, int64_t cols);
  void (*bias_dropout_forward)(const BiasDropoutArgs&, int64_t begin, int64_t end);
  /// partial: compute type [cols], overwritten with the column sums of dx over these rows; may be null.
  void (*bias_dropout_backward)(const BiasDropoutArgs&, int64_t begin, int64_t end, void* partial);
  /// partial: compute type [cols], overwritten.
  void (*column_sum)(View x, int64_t cols, int64_t begin, int64_t end, void* partial);
  /// Bytes of scratch of one task.
  int64_t (*attention_forward_bytes)(const AttentionArgs&);
  /// Query rows [begin, end) (begin a multiple of kAttentionBlock) of the query heads of KV head `kv` of sample `i`.
  void (*attention_forward)(const AttentionArgs&, int64_t i, int64_t kv, int64_t begin, int64_t end, void* scratch);
  int64_t (*attention_backward_bytes)(const AttentionArgs&);
  void (*attention_backward)(const AttentionArgs&, int64_t i, int64_t kv, void* scratch);
  void (*cross_entropy_max)(const CrossEntropyArgs&, int64_t begin, int64_t end);
  void (*cross_entropy_sum)(const CrossEntropyArgs&, int64_t begin, int64_t end);
  void (*cross_entropy_backward)(const CrossEntropyArgs&, int64_t begin, int64_t end);
  void (*scale)(void* x, double factor, int64_t n);
  double (*sum_of_squares)(const void* x, int64_t n);
  int64_t (*count_nonfinite)(const void* x, int64_t n);
  /// y = x and y += x into each of the four floating types.
  void (*copy[4])(const void* x, void* y, int64_t n);
  void (*add[4])(const void* x, void* y, int64_t n);
  /// Only under double and float.
  void (*sum_partials)(void* partial, int64_t blocks, int64_t block_stride, int64_t n);
  void (*adamw)(const AdamWArgs&, void* w, void* m, void* v, const void* g, int64_t n);
  void (*sgd)(const SgdArgs&, void* w, void* momentum, const void* g, int64_t n);
};

/// Query and key rows of one attention tile.
inline constexpr int64_t kAttentionBlock = 64;

struct KernelTable {
  const char* isa;      ///< "base", "avx2", "avx512", "avx512_bf16"
  bool bf16_products;   ///< gemm multiplies bf16 as bf16, not as fp32
  TypeKernels type[4];  ///< by DType: fp64, fp32, bf16, fp16
};

/// The best table this CPU can run, or the one named by TRIAX_CPU_ISA (ConfigError if unknown or not supported).
const KernelTable& cpu_kernel_table();
/// A table by name; ConfigError as above.
const KernelTable& cpu_kernel_table(const char* isa);
/// The processor multiplies bf16 matrices in tiles (AMX), which only the GEMM library uses.
bool cpu_has_bf16_tiles();

}  // namespace triax::kernels

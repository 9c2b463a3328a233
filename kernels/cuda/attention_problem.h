// One attention problem as the kernels see it, and the launchers of its kernels.
#pragma once

#include "kernels/cuda/dropout_site.h"

namespace triax::kernels {

struct AttentionShape {
  int batch, seq, heads, kv_heads, dim, head_begin;
  float scale;
  DropoutSite dropout;

  __device__ int64_t rows() const { return static_cast<int64_t>(batch) * seq; }
};

/// q, o and the like: [T, heads * dim], any row stride.
template <class T>
struct HeadRows {
  T* data;
  int64_t stride;
};

/// One head of one sample: row t, t = 0 .. seq - 1, begins at data + t * step.
template <class T>
struct HeadRun {
  T* data;
  int64_t step;
  __device__ T* at(int64_t t) const { return data + t * step; }
};

template <class T>
__device__ __forceinline__ HeadRun<T> head_run(const HeadRows<T>& rows, const AttentionShape& shape, int sample,
                                               int head) {
  return {rows.data + sample * rows.stride + static_cast<int64_t>(head) * shape.dim, shape.batch * rows.stride};
}

/// Tensors of the forward pass.
template <class T>
struct AttentionForwardArgs {
  AttentionShape shape;
  HeadRows<const T> q, k, v;
  HeadRows<T> o;
  float* lse;  // [heads, T]
};

/// Tensors of the backward pass. delta[head, r] = sum of dout * o over the head's columns of row r.
template <class T>
struct AttentionBackwardArgs {
  AttentionShape shape;
  HeadRows<const T> q, k, v, dout;
  HeadRows<T> dq, dk, dv;
  const float *lse, *delta;
};

/// By tensor cores: T is bf16 or fp16, dim a multiple of 8 up to 128, every row and head begins at a multiple of 16
/// bytes.
template <class T>
void launch_attention_forward(const AttentionForwardArgs<T>& args, cudaStream_t stream);
template <class T>
void launch_attention_backward(const AttentionBackwardArgs<T>& args, cudaStream_t stream);

/// By wgmma and the copy engine of Hopper, under the same conditions.
/// Whether this module holds code of the kernels below for the current GPU: the answer of a kernel. Waits for the
/// stream.
bool hopper_kernels_answer(cudaStream_t stream);
/// As launch_attention_forward and launch_attention_backward, on GPUs where hopper_kernels_answer says so.
template <class T>
void launch_hopper_forward(const AttentionForwardArgs<T>& args, cudaStream_t stream);
template <class T>
void launch_hopper_backward(const AttentionBackwardArgs<T>& args, cudaStream_t stream);

/// By fp32 multiply-adds: any type, alignment and dim up to kPlainDim.
inline constexpr int kPlainDim = 128;
template <class T>
void launch_plain_forward(const AttentionForwardArgs<T>& args, cudaStream_t stream);
template <class T>
void launch_plain_backward(const AttentionBackwardArgs<T>& args, cudaStream_t stream);

}  // namespace triax::kernels

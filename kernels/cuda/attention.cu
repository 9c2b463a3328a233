// Flash attention (Dao 2022, arXiv 2205.14135; Dao 2023, arXiv 2307.08691): checks, the choice of kernels, and the row
// sums delta = sum dout * o that the backward pass starts with. 16-bit types run on tensor cores where the head
// dimension is a multiple of 8 up to 128 and rows are aligned to 16 bytes; everything else, fp32 too, on plain
// multiply-adds. GPUs of compute capability 9.0 have tensor-core kernels of their own.
#include "kernels/cuda/attention_problem.h"
#include "kernels/cuda/block.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"

namespace triax::kernels {
namespace {

/// One warp per row and head. Bytes: dout and o once, delta once: the minimum.
template <class T>
__global__ void __launch_bounds__(kBlock)
    attention_delta(AttentionShape shape, HeadRows<const T> dout, HeadRows<const T> o, float* delta) {
  const int64_t index = (static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x) / kWarp;
  if (index >= shape.rows() * shape.heads) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t row = index / shape.heads, head = index % shape.heads;
  const T* const g = dout.data + row * dout.stride + head * shape.dim;
  const T* const y = o.data + row * o.stride + head * shape.dim;
  float sum = 0;
  for (int c = lane; c < shape.dim; c += kWarp) sum += to_float(g[c]) * to_float(y[c]);
  sum = warp_sum(sum);
  if (lane == 0) delta[head * shape.rows() + row] = sum;
}

AttentionShape checked_shape(const char* operation, const Attention& a) {
  ensure(a.batch > 0 && a.seq_length > 0 && a.head_dim > 0 && a.kv_heads > 0 && a.heads % a.kv_heads == 0,
         "attention: sizes must be positive and kv_heads divide heads");
  ensure(a.seq_length < (1 << 24) && a.batch <= kMaxGridYZ && a.heads <= kMaxGridYZ, "attention: too large");
  if (a.head_dim > kPlainDim) {
    throw ConfigError("--kv-channels " + std::to_string(a.head_dim) + " with --device cuda: attention has head " +
                      "dimensions up to " + std::to_string(kPlainDim) + " there; use more heads, or --device cpu");
  }
  const DropoutSite site = dropout_site(operation, a.dropout, a.index, a.batch * a.seq_length);
  ensure(!site.active || site.batch == a.batch, "attention: index.sample must have b elements");
  return {static_cast<int>(a.batch),    static_cast<int>(a.seq_length),
          static_cast<int>(a.heads),    static_cast<int>(a.kv_heads),
          static_cast<int>(a.head_dim), static_cast<int>(a.head_begin),
          static_cast<float>(a.scale),  site};
}

/// Whether tensor cores can take these.
bool fits_tensor_cores(const Attention& a, std::initializer_list<Tensor> tensors) {
  bool fits = a.head_dim % 8 == 0;
  for (const Tensor& t : tensors) {
    fits = fits && t.dtype() != DType::Float32 && reinterpret_cast<uintptr_t>(t.data()) % 16 == 0 &&
           (t.rows() == 1 || t.row_stride() % 8 == 0);
  }
  return fits;
}

template <class T>
HeadRows<const T> input(const Tensor& t) {
  return {t.as<T>(), t.row_stride()};
}
template <class T>
HeadRows<T> output(const Tensor& t) {
  return {t.as<T>(), t.row_stride()};
}

}  // namespace

bool CudaDevice::takes_hopper() {
  const bool takes = hopper_kernels_ && attention_kernels_ == AttentionKernels::Best;
  if (takes) ++special_calls_.hopper_attention;
  return takes;
}

void CudaDevice::attention_forward(const Attention& a, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse) {
  const char* const name = "attention_forward";
  const AttentionShape shape = checked_shape(name, a);
  const int64_t rows = a.batch * a.seq_length;
  need_matrix(name, "q", q, q.dtype(), rows, a.heads * a.head_dim);
  need_matrix(name, "k", k, q.dtype(), rows, a.kv_heads * a.head_dim);
  need_matrix(name, "v", v, q.dtype(), rows, a.kv_heads * a.head_dim);
  need_matrix(name, "o", o, q.dtype(), rows, a.heads * a.head_dim);
  need_vector(name, "lse", lse, DType::Float32, a.heads * rows);
  with_type(name, q.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const AttentionForwardArgs<T> args{shape, input<T>(q), input<T>(k), input<T>(v), output<T>(o), lse.as<float>()};
    if constexpr (!std::is_same_v<T, float>) {
      if (fits_tensor_cores(a, {q, k, v, o})) {
        return takes_hopper() ? launch_hopper_forward(args, stream()) : launch_attention_forward(args, stream());
      }
    }
    launch_plain_forward(args, stream());
  });
}

void CudaDevice::attention_backward(const Attention& a, Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse,
                                    Tensor dq, Tensor dk, Tensor dv) {
  const char* const name = "attention_backward";
  const AttentionShape shape = checked_shape(name, a);
  const DType dtype = q.dtype();
  const int64_t rows = a.batch * a.seq_length;
  const int64_t query_cols = a.heads * a.head_dim, key_cols = a.kv_heads * a.head_dim;
  need_matrix(name, "q", q, dtype, rows, query_cols);
  need_matrix(name, "o", o, dtype, rows, query_cols);
  need_matrix(name, "dout", dout, dtype, rows, query_cols);
  need_matrix(name, "dq", dq, dtype, rows, query_cols);
  need_matrix(name, "k", k, dtype, rows, key_cols);
  need_matrix(name, "v", v, dtype, rows, key_cols);
  need_matrix(name, "dk", dk, dtype, rows, key_cols);
  need_matrix(name, "dv", dv, dtype, rows, key_cols);
  need_vector(name, "lse", lse, DType::Float32, a.heads * rows);
  const Buffer sums = scratch(DType::Float32, a.heads * rows);
  float* const delta = static_cast<float*>(sums.data());
  with_type(name, dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    TRIAX_LAUNCH((attention_delta<T>), grid_of(a.heads * rows, kBlock / kWarp), kBlock, 0, stream(), shape,
                 input<T>(dout), input<T>(o), delta);
    const AttentionBackwardArgs<T> args{shape,         input<T>(q),   input<T>(k),   input<T>(v),     input<T>(dout),
                                        output<T>(dq), output<T>(dk), output<T>(dv), lse.as<float>(), delta};
    if constexpr (!std::is_same_v<T, float>) {
      if (fits_tensor_cores(a, {q, k, v, dout, dq, dk, dv})) {
        return takes_hopper() ? launch_hopper_backward(args, stream()) : launch_attention_backward(args, stream());
      }
    }
    launch_plain_backward(args, stream());
  });
}

}  // namespace triax::kernels

// y = silu(g) u with g = x[:, 0:f], u = x[:, f:2f], silu(g) = g sigmoid(g); dg = dy u s (1 + g (1 - s)), du = dy g s,
// s = sigmoid(g). x, dx: [T, 2f]; y, dy: [T, f]; row strides free.
// Bytes: forward 3 T f elements, backward 5 T f. Both are the minimum.
#include "kernels/cuda/activation_math.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

template <class T>
struct SwiGluForward {
  Rows<T> gate, up, y;
  template <int N>
  __device__ void at(int64_t r, int64_t c) const {
    float g[N], u[N];
    load(gate.at(r, c), g);
    load(up.at(r, c), u);
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) g[i] = g[i] * sigmoid<T>(g[i]) * u[i];
    store(y.at(r, c), g);
  }
};

template <class T>
struct SwiGluBackward {
  Rows<T> dy, gate, up, dgate, dup;
  template <int N>
  __device__ void at(int64_t r, int64_t c) const {
    float d[N], g[N], u[N];
    load(dy.at(r, c), d);
    load(gate.at(r, c), g);
    load(up.at(r, c), u);
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) {
      const float s = sigmoid<T>(g[i]);
      const float gradient = d[i] * u[i] * s * (1 + g[i] * (1 - s));
      u[i] = d[i] * g[i] * s;
      g[i] = gradient;
    }
    store(dgate.at(r, c), g);
    store(dup.at(r, c), u);
  }
};

/// The halves of x may stand where runs of n elements cross an access border.
bool halves_aligned(const Tensor& x, int64_t f, int64_t n) {
  return aligned_for(x.col_slice(0, f), n) && aligned_for(x.col_slice(f, 2 * f), n);
}

}  // namespace

void CudaDevice::swiglu_forward(Tensor x, Tensor y) {
  const int64_t f = y.cols();
  need_matrix("swiglu_forward", "x", x, y.dtype(), y.rows(), 2 * f);
  if (y.numel() == 0) return;
  with_type("swiglu_forward", y.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const Rows<T> whole = rows_of<T>(x);
    const SwiGluForward<T> body{whole, {whole.data + f, whole.stride}, rows_of<T>(y)};
    halves_aligned(x, f, kVector<T>) && aligned_for(y, kVector<T>)
        ? launch_elements<kVector<T>>(y.rows(), f, body, stream())
        : launch_elements<1>(y.rows(), f, body, stream());
  });
}

void CudaDevice::swiglu_backward(Tensor dy, Tensor x, Tensor dx) {
  const int64_t f = dy.cols();
  need_matrix("swiglu_backward", "x", x, dy.dtype(), dy.rows(), 2 * f);
  need_matrix("swiglu_backward", "dx", dx, dy.dtype(), dy.rows(), 2 * f);
  if (dy.numel() == 0) return;
  with_type("swiglu_backward", dy.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const Rows<T> in = rows_of<T>(x), out = rows_of<T>(dx);
    const SwiGluBackward<T> body{rows_of<T>(dy), in, {in.data + f, in.stride}, out, {out.data + f, out.stride}};
    halves_aligned(x, f, kVector<T>) && halves_aligned(dx, f, kVector<T>) && aligned_for(dy, kVector<T>)
        ? launch_elements<kVector<T>>(dy.rows(), f, body, stream())
        : launch_elements<1>(dy.rows(), f, body, stream());
  });
}

}  // namespace triax::kernels

// y = gelu(x) in the tanh form, 0.5 x (1 + tanh(u)) = x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3), and its
// gradient dx = dy (s + x s (1 - s) 2 du/dx), s = sigmoid(2u). x, y, dy, dx: [T, f], row strides free; dx may be dy.
// Bytes: forward reads x, writes y (2 T f elements); backward reads dy and x, writes dx (3 T f). Both are the minimum.
#include "kernels/cuda/activation_math.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

template <class T>
struct GeluForward {
  Rows<T> x, y;
  template <int N>
  __device__ void at(int64_t r, int64_t c) const {
    float v[N];
    load(x.at(r, c), v);
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) {
      const float twice_u = kTwoRootTwoOverPi * (v[i] + kCubic * v[i] * v[i] * v[i]);
      v[i] *= sigmoid<T>(twice_u);
    }
    store(y.at(r, c), v);
  }
};

template <class T>
struct GeluBackward {
  Rows<T> dy, x, dx;
  template <int N>
  __device__ void at(int64_t r, int64_t c) const {
    float d[N], v[N];
    load(dy.at(r, c), d);
    load(x.at(r, c), v);
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) {
      const float square = v[i] * v[i];
      const float s = sigmoid<T>(kTwoRootTwoOverPi * (v[i] + kCubic * square * v[i]));
      const float slope = kTwoRootTwoOverPi * (1 + 3 * kCubic * square);
      const float bump = s * (1 - s);  // 0 far out, where the slope may be infinite
      d[i] *= bump == 0 ? s : s + v[i] * bump * slope;
    }
    store(dx.at(r, c), d);
  }
};

}  // namespace

void CudaDevice::gelu_forward(Tensor x, Tensor y) {
  need_matrix("gelu_forward", "y", y, x.dtype(), x.rows(), x.cols());
  if (x.contiguous() && y.contiguous()) x = x.flat(), y = y.flat();
  with_type("gelu_forward", x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const GeluForward<T> body{rows_of<T>(x), rows_of<T>(y)};
    const bool wide = aligned_for(x, kVector<T>) && aligned_for(y, kVector<T>);
    wide ? launch_elements<kVector<T>>(x.rows(), x.cols(), body, stream())
         : launch_elements<1>(x.rows(), x.cols(), body, stream());
  });
}

void CudaDevice::gelu_backward(Tensor dy, Tensor x, Tensor dx) {
  need_matrix("gelu_backward", "dy", dy, x.dtype(), x.rows(), x.cols());
  need_matrix("gelu_backward", "dx", dx, x.dtype(), x.rows(), x.cols());
  if (x.contiguous() && dy.contiguous() && dx.contiguous()) x = x.flat(), dy = dy.flat(), dx = dx.flat();
  with_type("gelu_backward", x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const GeluBackward<T> body{rows_of<T>(dy), rows_of<T>(x), rows_of<T>(dx)};
    const bool wide = aligned_for(x, kVector<T>) && aligned_for(dy, kVector<T>) && aligned_for(dx, kVector<T>);
    wide ? launch_elements<kVector<T>>(x.rows(), x.cols(), body, stream())
         : launch_elements<1>(x.rows(), x.cols(), body, stream());
  });
}

}  // namespace triax::kernels

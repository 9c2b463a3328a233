// In place on x[T, heads * d], row stride free: in the first 2 n elements of each head, n = table.cols(), element i is
// paired with i + n and rotated by the angle of its row's position: (x0 cos - x1 sin, x1 cos + x0 sin); backward by its
// negative. cos, sin: fp32 [positions, n]; position: int32 [T].
// Bytes: 2n elements of every head are read and written once (the minimum), plus 8 n bytes of tables per row.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

template <class T>
struct Rotate {
  Rows<T> x;
  Rows<const float> cos, sin;
  const int32_t* position;
  int64_t head_dim;
  int pairs;   // n
  float sign;  // -1 backward
  /// Column c stands for pair c % n of head c / n.
  template <int N>
  __device__ void at(int64_t r, int64_t c) const {
    const int head = static_cast<int>(c) / pairs, pair = static_cast<int>(c) - head * pairs;
    const int32_t p = position[r];
    T* const first = x.at(r, head * head_dim + pair);
    float v0[N], v1[N], co[N], si[N];
    load(first, v0);
    load(first + pairs, v1);
    load(cos.at(p, pair), co);
    load(sin.at(p, pair), si);
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) {
      const float s = sign * si[i], x0 = v0[i];
      v0[i] = x0 * co[i] - v1[i] * s;
      v1[i] = v1[i] * co[i] + x0 * s;
    }
    store(first, v0);
    store(first + pairs, v1);
  }
};

}  // namespace

void CudaDevice::rotary(Tensor x, Tensor cos, Tensor sin, Tensor position, int64_t heads, RotaryDirection direction) {
  ensure(heads > 0 && x.cols() % heads == 0, "rotary: columns are not heads * d");
  const int64_t pairs = cos.cols(), head_dim = x.cols() / heads;
  need_matrix("rotary", "cos", cos, DType::Float32, cos.rows(), pairs);
  need_matrix("rotary", "sin", sin, DType::Float32, cos.rows(), pairs);
  ensure(2 * pairs <= head_dim, "rotary: the table is wider than a head");
  need_vector("rotary", "position", position, DType::Int32, x.rows());
  with_type("rotary", x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kWide = 4;  // 16 bytes of tables, 8 or 16 of x
    const Rotate<T> body{rows_of<T>(x),
                         rows_of<const float>(cos),
                         rows_of<const float>(sin),
                         position.as<int32_t>(),
                         head_dim,
                         static_cast<int>(pairs),
                         direction == RotaryDirection::Forward ? 1.0f : -1.0f};
    const bool wide = pairs % kWide == 0 && head_dim % kWide == 0 && aligned_for(x, kWide) && aligned_for(cos, kWide) &&
                      aligned_for(sin, kWide);
    wide ? launch_elements<kWide>(x.rows(), heads * pairs, body, stream())
         : launch_elements<1>(x.rows(), heads * pairs, body, stream());
  });
}

}  // namespace triax::kernels

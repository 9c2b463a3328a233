// In place on x[T, heads * d], row stride free: in the first 2 n elements of each head, n = table.cols(), element i is
// paired with i + n and rotated by the angle of its row's position: (x0 cos - x1 sin, x1 cos + x0 sin); backward by its
// negative. cos, sin: fp32 [positions, n]; position: int32 [T].
// Bytes: 2n elements of every head are read and written once and, from 65536 threads on, the tables' row of every row
// of x: the minimum. A smaller x reads the tables again for each of up to a groups of heads.
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
  int pairs;  // n
  int heads;  // of x, and how many a thread takes, so that it reads the table once for them
  int heads_each;
  float sign;  // -1 backward
  /// Column c stands for pairs c % n .. of heads c / n * heads_each ..
  template <int N>
  __device__ void at(int64_t r, int64_t c) const {
    const int group = static_cast<int>(c) / pairs, pair = static_cast<int>(c) - group * pairs;
    const int32_t p = global_read(position + r);
    float co[N], si[N];
    load(cos.at(p, pair), co);
    load(sin.at(p, pair), si);
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) si[i] *= sign;
    const int begin = group * heads_each, end = begin + heads_each < heads ? begin + heads_each : heads;
    for (int head = begin; head < end; ++head) {
      T* const first = x.at(r, head * head_dim + pair);
      float v0[N], v1[N];
      load(first, v0);
      load(first + pairs, v1);
      TRIAX_UNROLL
      for (int i = 0; i < N; ++i) {
        const float x0 = v0[i];
        v0[i] = x0 * co[i] - v1[i] * si[i];
        v1[i] = v1[i] * co[i] + x0 * si[i];
      }
      store(first, v0);
      store(first + pairs, v1);
    }
  }
};

/// Threads that a GPU wants before each of them takes more than one head.
constexpr int64_t kRotaryThreads = 65536;

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
    const bool wide = pairs % kWide == 0 && head_dim % kWide == 0 && aligned_for(x, kWide) && aligned_for(cos, kWide) &&
                      aligned_for(sin, kWide);
    const int64_t per_head = std::max<int64_t>(1, x.rows() * (wide ? pairs / kWide : pairs));
    const int64_t groups = std::clamp<int64_t>((kRotaryThreads + per_head - 1) / per_head, 1, heads);
    const int64_t each = (heads + groups - 1) / groups;
    const Rotate<T> body{rows_of<T>(x),
                         rows_of<const float>(cos),
                         rows_of<const float>(sin),
                         position.as<int32_t>(),
                         head_dim,
                         static_cast<int>(pairs),
                         static_cast<int>(heads),
                         static_cast<int>(each),
                         direction == RotaryDirection::Forward ? 1.0f : -1.0f};
    const int64_t cols = (heads + each - 1) / each * pairs;
    wide ? launch_elements<kWide>(x.rows(), cols, body, stream()) : launch_elements<1>(x.rows(), cols, body, stream());
  });
}

}  // namespace triax::kernels

// fill: x = value. copy: y = x converted. add: y += x. scale: x *= factor. All [rows, cols], row strides free; sums and
// products in fp32, rounded once to the tensor's type.
// Bytes: fill writes x; copy reads x, writes y; add reads x and y, writes y; scale reads and writes x. All the minimum.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

template <class T>
struct Fill {
  Rows<T> x;
  float value;
  template <int N>
  __device__ void at(int64_t r, int64_t c) const {
    float v[N];
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) v[i] = value;
    store(x.at(r, c), v);
  }
};

template <class X, class Y>
struct Copy {
  Rows<X> x;
  Rows<Y> y;
  template <int N>
  __device__ void at(int64_t r, int64_t c) const {
    float v[N];
    load(x.at(r, c), v);
    store(y.at(r, c), v);
  }
};

template <class X, class Y>
struct Add {
  Rows<X> x;
  Rows<Y> y;
  template <int N>
  __device__ void at(int64_t r, int64_t c) const {
    float v[N], sum[N];
    load(x.at(r, c), v);
    load(y.at(r, c), sum);
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) sum[i] += v[i];
    store(y.at(r, c), sum);
  }
};

template <class T>
struct Scale {
  Rows<T> x;
  float factor;
  template <int N>
  __device__ void at(int64_t r, int64_t c) const {
    float v[N];
    load(x.at(r, c), v);
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) v[i] *= factor;
    store(x.at(r, c), v);
  }
};

template <template <class, class> class Body>
void launch_pair(const char* operation, Tensor x, Tensor y, cudaStream_t stream) {
  if (x.contiguous() && y.contiguous()) x = x.flat(), y = y.flat();
  with_type(operation, x.dtype(), [&](auto from) {
    with_type(operation, y.dtype(), [&](auto to) {
      using X = typename decltype(from)::type;
      using Y = typename decltype(to)::type;
      const Body<X, Y> body{rows_of<X>(x), rows_of<Y>(y)};
      aligned_for(x, kVector<X, Y>) && aligned_for(y, kVector<X, Y>)
          ? launch_elements<kVector<X, Y>>(x.rows(), x.cols(), body, stream)
          : launch_elements<1>(x.rows(), x.cols(), body, stream);
    });
  });
}

template <template <class> class Body>
void launch_single(const char* operation, Tensor x, float value, cudaStream_t stream) {
  x = flattened(x);
  with_type(operation, x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const Body<T> body{rows_of<T>(x), value};
    aligned_for(x, kVector<T>) ? launch_elements<kVector<T>>(x.rows(), x.cols(), body, stream)
                               : launch_elements<1>(x.rows(), x.cols(), body, stream);
  });
}

bool is_plain_data(DType dtype) { return dtype > DType::Float16; }

}  // namespace

void CudaDevice::fill(Tensor x, double value) {
  if (value == 0 && x.contiguous()) {  // any type, fp64 sums too
    TRIAX_CUDA(cudaMemsetAsync(x.data(), 0, static_cast<size_t>(x.bytes()), stream()));
    return;
  }
  launch_single<Fill>("fill", x, static_cast<float>(value), stream());
}

void CudaDevice::copy(Tensor x, Tensor y) {
  need_matrix("copy", "y", y, y.dtype(), x.rows(), x.cols());
  if (is_plain_data(x.dtype()) || is_plain_data(y.dtype())) {
    ensure(x.dtype() == y.dtype(), "copy: integers are copied, not converted");
    const size_t size = size_of(x.dtype());
    const auto width = static_cast<size_t>(x.cols()) * size;
    if (x.numel() == 0) return;
    const auto pitch = [&](const Tensor& t) { return std::max(static_cast<size_t>(t.row_stride()) * size, width); };
    TRIAX_CUDA(cudaMemcpy2DAsync(y.data(), pitch(y), x.data(), pitch(x), width, static_cast<size_t>(x.rows()),
                                 cudaMemcpyDeviceToDevice, stream()));
    return;
  }
  launch_pair<Copy>("copy", x, y, stream());
}

void CudaDevice::add(Tensor x, Tensor y) {
  need_matrix("add", "y", y, y.dtype(), x.rows(), x.cols());
  launch_pair<Add>("add", x, y, stream());
}

void CudaDevice::scale(Tensor x, double factor) {
  launch_single<Scale>("scale", x, static_cast<float>(factor), stream());
}

void CudaDevice::add_bias(Tensor bias, Tensor c) {
  // A row stride of 0 reads the same row for every r.
  with_type("add_bias", bias.dtype(), [&](auto from) {
    with_type("add_bias", c.dtype(), [&](auto to) {
      using X = typename decltype(from)::type;
      using Y = typename decltype(to)::type;
      const Add<X, Y> body{{static_cast<X*>(bias.data()), 0}, rows_of<Y>(c)};
      launch_elements<1>(c.rows(), c.cols(), body, stream());
    });
  });
}

}  // namespace triax::kernels

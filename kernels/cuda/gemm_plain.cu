// C[m,n] (+)= op(A) op(B) + bias for any strides and alignment, by fp32 multiply-adds without tensor cores: the way for
// the few shapes (odd strides of 16-bit types) that cuBLASLt refuses. Tiles of 64 x 64, 16 deep; a thread sums 4 x 4
// elements. Bytes: A is read n / 64 times, B m / 64 times.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

constexpr int kGemmTile = 64, kDepth = 16, kSide = 16, kEach = kGemmTile / kSide;

/// Element (i, l) of op(A) is data[i * row + l * col].
template <class T>
struct Operand {
  const T* data;
  int64_t row, col;
};

template <class T, class C>
__global__ void __launch_bounds__(kBlock)
    gemm_tile(Operand<T> a, Operand<T> b, Rows<C> c, const T* bias, int64_t m, int64_t n, int64_t k, bool accumulate) {
  __shared__ float as[kDepth][kGemmTile + 1], bs[kDepth][kGemmTile + 1];
  const int tx = threadIdx.x % kSide, ty = threadIdx.x / kSide;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kGemmTile,
                col0 = static_cast<int64_t>(blockIdx.y) * kGemmTile;
  float sum[kEach][kEach];
  TRIAX_UNROLL
  for (int i = 0; i < kEach; ++i) {
    TRIAX_UNROLL
    for (int j = 0; j < kEach; ++j) sum[i][j] = 0;
  }
  for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
    for (int e = threadIdx.x; e < kDepth * kGemmTile; e += kBlock) {
      const int l = e % kDepth, i = e / kDepth;
      const bool deep = k0 + l < k;
      as[l][i] = deep && row0 + i < m ? to_float(a.data[(row0 + i) * a.row + (k0 + l) * a.col]) : 0.0f;
      bs[l][i] = deep && col0 + i < n ? to_float(b.data[(k0 + l) * b.row + (col0 + i) * b.col]) : 0.0f;
    }
    __syncthreads();
    for (int l = 0; l < kDepth; ++l) {
      TRIAX_UNROLL
      for (int i = 0; i < kEach; ++i) {
        TRIAX_UNROLL
        for (int j = 0; j < kEach; ++j) sum[i][j] += as[l][ty + i * kSide] * bs[l][tx + j * kSide];
      }
    }
    __syncthreads();
  }
  TRIAX_UNROLL
  for (int i = 0; i < kEach; ++i) {
    TRIAX_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const int64_t r = row0 + ty + i * kSide, s = col0 + tx + j * kSide;
      if (r < m && s < n) {
        C* const to = c.at(r, s);
        float v = sum[i][j];
        if (bias != nullptr) v += to_float(bias[s]);
        if (accumulate) v += to_float(*to);
        *to = from_float<C>(v);
      }
    }
  }
}

template <class T>
Operand<T> operand(const Tensor& t, Transpose transpose) {
  if (transpose == Transpose::Yes) return {t.as<T>(), 1, t.row_stride()};
  return {t.as<T>(), t.row_stride(), 1};
}

}  // namespace

void CudaDevice::gemm_plain(const Gemm& g) {
  const int64_t m = g.c.rows(), n = g.c.cols(), k = g.transpose_a == Transpose::Yes ? g.a.rows() : g.a.cols();
  ensure(n <= kMaxGridYZ * kGemmTile, "gemm: too many columns for a shape that cuBLASLt refuses");
  const auto launch = [&](auto in, auto out) {
    using T = typename decltype(in)::type;
    using C = typename decltype(out)::type;
    TRIAX_LAUNCH((gemm_tile<T, C>), dim3(grid_of(m, kGemmTile), grid_of(n, kGemmTile)), kBlock, 0, stream(),
                 operand<T>(g.a, g.transpose_a), operand<T>(g.b, g.transpose_b), rows_of<C>(g.c),
                 static_cast<const T*>(g.bias.data()), m, n, k, g.accumulate == Accumulate::Yes);
  };
  with_type("gemm", g.a.dtype(),
            [&](auto in) { g.c.dtype() == DType::Float32 ? launch(in, Type<float>()) : launch(in, in); });
}

}  // namespace triax::kernels

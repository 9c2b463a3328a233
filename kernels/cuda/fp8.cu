// Products of operands rounded to fp8 (arXiv 2209.05433): c (+)= (op(A) op(B)) / (sa sb) + bias with A, B rounded from
// a * sa and b * sb. cuBLASLt multiplies fp8 only where both operands are contiguous in k, so that each is written by a
// cast or by a cast with a transpose, [m, k] and [n, k], into scratch.
// Bytes of a cast: 2 read and 1 written for each element, the minimum; Fp8Scaling::Current reads x once more.
#include <algorithm>

#include "base/fp8.h"
#include "kernels/cuda/block.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

constexpr int kRun = 8;              // elements of one access of 16 bytes
constexpr int kTransposedTile = 64;  // its rows and columns
constexpr int kMultiple = 16;

__device__ __forceinline__ float largest(const float (&v)[kRun], float max) {
  TRIAX_UNROLL
  for (int i = 0; i < kRun; ++i) max = fmaxf(max, fabsf(v[i]));
  return max;
}

/// *amax = max(*amax, max over the block); not negative, so that the order of floats is that of their bits.
__device__ __forceinline__ void note_largest(float max, BlockScratch<float>& scratch, float* amax) {
  max = block_max(max, scratch);
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<int*>(amax), __float_as_int(max));
}

/// each(i, v) for every run i of eight elements v that falls to this thread; the largest |x| of them.
template <class T, class Each>
__device__ __forceinline__ float over_runs(Rows<const T> x, int64_t rows, int64_t cols, Each&& each) {
  float max = 0;
  const int64_t runs = cols / kRun;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x; i < rows * runs;
       i += static_cast<int64_t>(gridDim.x) * kBlock) {
    float v[kRun];
    load(x.at(i / runs, i % runs * kRun), v);
    max = largest(v, max);
    each(i, v);
  }
  return max;
}

template <class T>
__global__ void __launch_bounds__(kBlock) fp8_amax(Rows<const T> x, int64_t rows, int64_t cols, float* amax) {
  __shared__ BlockScratch<float> scratch;
  note_largest(over_runs(x, rows, cols, [](int64_t, const float(&)[kRun]) {}), scratch, amax);
}

/// scale = {f, 1 / f} with f = target / amax, 1 where that is no number.
__global__ void fp8_set_scale(const float* amax, float target, float* scale) {
  const float factor = target / *amax;
  const bool usable = factor > 0 && factor < INFINITY;
  scale[0] = usable ? factor : 1;
  scale[1] = usable ? 1 / factor : 1;
}

/// y[r, c] = fp8(x[r, c] * scale[0]), y contiguous; and the largest |x|.
template <class T, DType Type>
__global__ void __launch_bounds__(kBlock)
    fp8_cast(Rows<const T> x, int64_t rows, int64_t cols, const float* scale, float* amax, uint8_t* y) {
  __shared__ BlockScratch<float> scratch;
  const float factor = scale[0];
  const float max = over_runs(x, rows, cols, [factor, y](int64_t i, const float(&v)[kRun]) {
    alignas(8) uint8_t out[kRun];
    TRIAX_UNROLL
    for (int j = 0; j < kRun; ++j) out[j] = fp8_bits<Type>(v[j] * factor);
    *reinterpret_cast<uint2*>(y + i * kRun) = *reinterpret_cast<const uint2*>(out);
  });
  note_largest(max, scratch, amax);
}

/// The same with y[c, r], by tiles of 64 x 64.
template <class T, DType Type>
__global__ void __launch_bounds__(kBlock)
    fp8_cast_transposed(Rows<const T> x, int64_t rows, int64_t cols, const float* scale, float* amax, uint8_t* y) {
  __shared__ BlockScratch<float> scratch;
  __shared__ uint8_t tile[kTransposedTile][kTransposedTile + 4];
  const float factor = scale[0];
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * kTransposedTile,
                col0 = static_cast<int64_t>(blockIdx.x) * kTransposedTile;
  float max = 0;
  for (int i = threadIdx.x; i < kTransposedTile * kTransposedTile / kRun; i += kBlock) {
    const int r = i / (kTransposedTile / kRun), c = i % (kTransposedTile / kRun) * kRun;
    if (row0 + r >= rows || col0 + c >= cols) continue;
    float v[kRun];
    load(x.at(row0 + r, col0 + c), v);
    max = largest(v, max);
    TRIAX_UNROLL
    for (int j = 0; j < kRun; ++j) tile[r][c + j] = fp8_bits<Type>(v[j] * factor);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTransposedTile * kTransposedTile / 4; i += kBlock) {
    const int c = i / (kTransposedTile / 4), r = i % (kTransposedTile / 4) * 4;
    if (row0 + r >= rows || col0 + c >= cols) continue;
    uint32_t four = 0;
    TRIAX_UNROLL
    for (int j = 0; j < 4; ++j) four |= static_cast<uint32_t>(tile[r + j][c]) << (8 * j);
    *reinterpret_cast<uint32_t*>(y + (col0 + c) * rows + row0 + r) = four;
  }
  note_largest(max, scratch, amax);
}

unsigned run_blocks(const Tensor& x) {
  const int64_t runs = x.rows() * x.cols() / kRun;
  return static_cast<unsigned>(std::min(kElementBlocks, (runs + kBlock - 1) / kBlock));
}

template <class T, DType Type>
void cast_as(Tensor x, const Fp8Operand& how, Transpose transpose, Tensor y, cudaStream_t stream) {
  const Rows<const T> from = rows_of<const T>(x);
  float* const scale = how.scale.as<float>();
  float* const amax = how.amax.as<float>();
  uint8_t* const to = static_cast<uint8_t*>(y.data());
  if (how.scaling == Fp8Scaling::Current) {
    const float target = std::ldexp(fp8_max(Type), -how.margin);
    TRIAX_LAUNCH(fp8_amax<T>, run_blocks(x), kBlock, 0, stream, from, x.rows(), x.cols(), amax);
    TRIAX_LAUNCH(fp8_set_scale, 1, 1, 0, stream, static_cast<const float*>(amax), target, scale);
  }
  if (transpose == Transpose::No) {
    TRIAX_LAUNCH((fp8_cast<T, Type>), run_blocks(x), kBlock, 0, stream, from, x.rows(), x.cols(),
                 static_cast<const float*>(scale), amax, to);
    return;
  }
  const dim3 grid(grid_of(x.cols(), kTransposedTile), grid_of(x.rows(), kTransposedTile));
  TRIAX_LAUNCH((fp8_cast_transposed<T, Type>), grid, kBlock, 0, stream, from, x.rows(), x.cols(),
               static_cast<const float*>(scale), amax, to);
}

void check_operand(const Tensor& x, const Fp8Operand& how) {
  ensure(x.rows() % kMultiple == 0 && x.cols() % kMultiple == 0 && aligned_for(x, kRun),
         "gemm: fp8 operands have multiples of 16 rows and columns, and rows that begin at multiples of 16 bytes");
  ensure(x.rows() / kTransposedTile < kMaxGridYZ, "gemm: an fp8 operand has too many rows");
  need_vector("gemm", "scale of an fp8 operand", how.scale, DType::Float32, 2);
  need_vector("gemm", "amax of an fp8 operand", how.amax, DType::Float32, 1);
}

}  // namespace

std::string CudaDevice::fp8_refusal() const {
  if (capability_ >= 89) return {};
  return "a GPU of compute capability " + std::to_string(capability_ / 10) + "." + std::to_string(capability_ % 10) +
         " has no fp8 products, which begin with 8.9 (Ada, Hopper)";
}

void CudaDevice::cast_fp8(Tensor x, const Fp8Operand& how, Transpose transpose, Tensor y) {
  with_type("gemm", x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    how.type == DType::Float8E4M3 ? cast_as<T, DType::Float8E4M3>(x, how, transpose, y, stream())
                                  : cast_as<T, DType::Float8E5M2>(x, how, transpose, y, stream());
  });
}

void CudaDevice::gemm_fp8(const Gemm& g) {
  ensure(g.fp8_a.scale && g.fp8_b.scale && fp8_refusal().empty(), "gemm: both operands become fp8, where the GPU can");
  ensure(g.a.dtype() != DType::Float32, "gemm: fp8 operands are made from 16-bit types");
  check_operand(g.a, g.fp8_a);
  check_operand(g.b, g.fp8_b);
  const int64_t m = g.c.rows(), n = g.c.cols(), k = g.transpose_a == Transpose::Yes ? g.a.rows() : g.a.cols();
  const Buffer a = scratch(g.fp8_a.type, m * k), b = scratch(g.fp8_b.type, n * k);
  Gemm product = g;
  product.a = a.view(g.fp8_a.type, {m, k});
  product.b = b.view(g.fp8_b.type, {n, k});
  cast_fp8(g.a, g.fp8_a, g.transpose_a, product.a);
  cast_fp8(g.b, g.fp8_b, g.transpose_b == Transpose::Yes ? Transpose::No : Transpose::Yes, product.b);
  product.transpose_a = Transpose::No;
  product.transpose_b = Transpose::Yes;
  if (!multiply(product)) {
    throw RunTimeError("--fp8-format: cuBLASLt has no algorithm for an fp8 product of " + std::to_string(m) + " x " +
                       std::to_string(n) + " x " + std::to_string(k) + "; use --bf16 alone");
  }
  ++special_calls_.fp8_products;
}

}  // namespace triax::kernels

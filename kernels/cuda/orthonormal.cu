// Makes the r rows of x[r, n] orthonormal (modified Gram-Schmidt, twice), in one block: r is the rank of PowerSGD, a
// few. A row that depends on those before it is replaced by normal numbers (kernels/compression.h). Sums in fp64, in an
// order that depends on n alone. Bytes: a row is read and written 4 times for each row before it, from the caches.
#include "kernels/cuda/block.h"
#include "kernels/cuda/code_blocks.h"
#include "kernels/cuda/cuda_compression.h"
#include "kernels/cuda/elements.h"
#include "kernels/dropout_key.h"

namespace triax::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kAttempts = 8;
constexpr uint64_t kNextStream = 0x9E3779B97F4A7C15ULL;

/// Element `index` of the normal stream (seed, stream): base/philox.h.
__device__ float normal(uint64_t seed, uint64_t stream, uint64_t index) {
  const uint64_t block = index / 4;
  const DropoutKey key = {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}};
  const PhiloxWords words = dropout_philox({{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                             static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)}},
                                           key);
  const bool second = index / 2 % 2 == 1;
  const auto uniform = [](uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; };
  const double radius = sqrt(-2.0 * log(uniform(second ? words.word[2] : words.word[0])));
  const double angle = 6.283185307179586 * uniform(second ? words.word[3] : words.word[1]);
  return static_cast<float>(radius * (index % 2 == 0 ? cos(angle) : sin(angle)));
}

/// What the threads of the block do together with rows; element i of a row is always thread i % kThreads's.
struct BlockRows {
  float* x;
  int64_t n;
  BlockScratch<double> (&scratch)[2];
  int turn = 0;

  __device__ float* row(int64_t r) const { return x + r * n; }
  __device__ double dot(const float* a, const float* b) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += kThreads) {
      sum += static_cast<double>(global_read(a + i)) * static_cast<double>(global_read(b + i));
    }
    turn ^= 1;
    return block_sum(sum, scratch[turn]);
  }
  /// a = factor * b + (keep ? a : 0).
  __device__ void combine(float* a, float factor, const float* b, bool keep) const {
    for (int64_t i = threadIdx.x; i < n; i += kThreads) {
      const float scaled = __fmul_rn(factor, global_read(b + i));
      global_write(a + i, keep ? __fadd_rn(global_read(a + i), scaled) : scaled);
    }
  }
};

__global__ void __launch_bounds__(kThreads)
    orthonormal_rows(float* x, int64_t count, int64_t n, uint64_t seed, uint64_t stream) {
  __shared__ BlockScratch<double> scratch[2];
  BlockRows rows{x, n, scratch};
  // A row that shrinks below this under the projections is rounding noise of the rows before it.
  const double noise = 64 * 0x1p-24 * sqrt(static_cast<double>(n));
  for (int64_t r = 0; r < count; ++r) {
    float* const row = rows.row(r);
    double before = sqrt(rows.dot(row, row));
    for (int attempt = 0; attempt <= kAttempts; ++attempt) {
      for (int64_t q = 0; q < 2 * r; ++q) {
        const float* const other = rows.row(q % r);
        rows.combine(row, static_cast<float>(-rows.dot(row, other)), other, true);
      }
      const double after = sqrt(rows.dot(row, row));
      if (!(fabs(after) <= 1.7e308)) break;  // left as it is, for the norm of the gradient to find
      if (after > noise * before && after > 1e-150) {
        rows.combine(row, static_cast<float>(1 / after), row, false);
        if (before <= after * 1e3) break;
        before = 1;  // most of the row cancelled: once more, now that its length is 1
        continue;
      }
      for (int64_t i = threadIdx.x; i < n; i += kThreads) {
        const float value =
            normal(seed, stream + static_cast<uint64_t>(attempt) * kNextStream, static_cast<uint64_t>(r * n + i));
        global_write(row + i, attempt < kAttempts ? value : NAN);  // no direction found
      }
      before = sqrt(rows.dot(row, row));
    }
  }
}

}  // namespace

void CudaCompression::orthonormalize(Tensor x, uint64_t seed, uint64_t stream) {
  need_matrix("orthonormalize", "x", x, DType::Float32, x.rows(), x.cols());
  ensure(x.contiguous() && x.rows() <= x.cols(), "orthonormalize: x[r, n], r <= n");
  if (x.numel() == 0) return;
  TRIAX_LAUNCH(orthonormal_rows, 1u, kThreads, 0, queue(), x.as<float>(), x.rows(), x.cols(), seed, stream);
}

}  // namespace triax::kernels

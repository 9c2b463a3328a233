// Reading and writing runs of elements, and the grid of elementwise kernels.
#pragma once

#include <algorithm>

#include "base/tensor.h"
#include "kernels/cuda/global_memory.h"
#include "kernels/cuda/ptx.h"

namespace triax::kernels {

/// A matrix on the device: element (r, c) is data[r * stride + c].
template <class T>
struct Rows {
  T* data;
  int64_t stride;
  __device__ T* at(int64_t r, int64_t c) const { return data + r * stride + c; }
};

template <class T>
Rows<T> rows_of(const Tensor& t) {
  return {static_cast<T*>(t.data()), t.row_stride()};
}

/// N elements as floats, in accesses of up to 16 bytes. N * sizeof(T) is a power of two; p is aligned to it or to 16.
template <int N, class T>
__device__ __forceinline__ void load(const T* p, float (&v)[N], Site site = Site::current()) {
  constexpr int kBytes = N * static_cast<int>(sizeof(T));
  alignas(16) T raw[N];
  if constexpr (kBytes >= 16) {
    TRIAX_UNROLL
    for (int i = 0; i < kBytes / 16; ++i) {
      reinterpret_cast<uint4*>(raw)[i] = global_read(reinterpret_cast<const uint4*>(p) + i, site);
    }
  } else if constexpr (kBytes == 8) {
    *reinterpret_cast<uint2*>(raw) = global_read(reinterpret_cast<const uint2*>(p), site);
  } else {
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) raw[i] = global_read(p + i, site);
  }
  TRIAX_UNROLL
  for (int i = 0; i < N; ++i) v[i] = to_float(raw[i]);
}

/// N elements as they lie in memory, 16 bytes: what a thread keeps of a vector that it needs for every row.
template <class T, int N>
struct RawRun {
  static_assert(N * sizeof(T) == 16);
  uint4 bits;
  __device__ __forceinline__ void fetch(const T* p, Site site = Site::current()) {
    bits = global_read(reinterpret_cast<const uint4*>(p), site);
  }
  __device__ __forceinline__ void values(float (&v)[N]) const {
    alignas(16) T raw[N];
    *reinterpret_cast<uint4*>(raw) = bits;
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) v[i] = to_float(raw[i]);
  }
};

template <int N, class T>
__device__ __forceinline__ void store(T* p, const float (&v)[N], Site site = Site::current()) {
  constexpr int kBytes = N * static_cast<int>(sizeof(T));
  alignas(16) T raw[N];
  TRIAX_UNROLL
  for (int i = 0; i < N; ++i) raw[i] = from_float<T>(v[i]);
  if constexpr (kBytes >= 16) {
    TRIAX_UNROLL
    for (int i = 0; i < kBytes / 16; ++i) {
      global_write(reinterpret_cast<uint4*>(p) + i, reinterpret_cast<const uint4*>(raw)[i], site);
    }
  } else if constexpr (kBytes == 8) {
    global_write(reinterpret_cast<uint2*>(p), *reinterpret_cast<const uint2*>(raw), site);
  } else {
    TRIAX_UNROLL
    for (int i = 0; i < N; ++i) global_write(p + i, raw[i], site);
  }
}

/// Elements that one access of 16 bytes holds of the widest type among these.
template <class... T>
inline constexpr int kVector = 16 / static_cast<int>(std::max({sizeof(T)...}));

/// Whether runs of n elements may start at any multiple of n columns of every row of t. An empty tensor may.
inline bool aligned_for(const Tensor& t, int64_t n) {
  if (!t) return true;
  const int64_t bytes = std::min<int64_t>(16, n * static_cast<int64_t>(size_of(t.dtype())));
  return reinterpret_cast<uintptr_t>(t.data()) % static_cast<uintptr_t>(bytes) == 0 &&
         (t.rows() == 1 || t.row_stride() % n == 0);
}

/// body.at<N>(r, c) for every run of columns c .. c + N - 1 of rows row0 .. row0 + rows - 1: N is V, and 1 in what V
/// does not divide. More than one row: less than 2^31 runs, so that a 32-bit division finds the row.
template <int V, class Body>
__global__ void __launch_bounds__(kBlock, 4) for_elements(int64_t row0, int64_t rows, int64_t cols, Body body) {
  const int64_t runs = (cols + V - 1) / V;
  const int64_t total = rows * runs;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x; i < total;
       i += static_cast<int64_t>(gridDim.x) * kBlock) {
    const int64_t r = rows == 1 ? 0 : static_cast<uint32_t>(i) / static_cast<uint32_t>(runs);
    int64_t c = (i - r * runs) * V;
    if (c + V <= cols) {
      body.template at<V>(row0 + r, c);
    } else {
      for (; c < cols; ++c) body.template at<1>(row0 + r, c);
    }
  }
}

/// Blocks that fill any GPU several times over; the rest of the work comes round in the kernel's loop.
inline constexpr int64_t kElementBlocks = 4096;

template <int V, class Body>
void launch_elements(int64_t rows, int64_t cols, const Body& body, cudaStream_t stream) {
  const int64_t runs = (cols + V - 1) / V;
  if (rows * runs == 0) return;
  const int64_t slice = std::max<int64_t>(1, ((int64_t{1} << 31) - 1) / runs);
  for (int64_t row0 = 0; row0 < rows; row0 += slice) {
    const int64_t here = std::min(slice, rows - row0);
    const auto grid = static_cast<unsigned>(std::min(kElementBlocks, (here * runs + kBlock - 1) / kBlock));
    TRIAX_LAUNCH((for_elements<V, Body>), grid, kBlock, 0, stream, row0, here, cols, body);
  }
}

}  // namespace triax::kernels

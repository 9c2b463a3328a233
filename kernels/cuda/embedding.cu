// Forward: y[T, h] (+)= table[token - first, :] where that row exists, else (+)= 0. Backward: dtable[token - first, :]
// += dy[T, h], equal tokens in order of T, without atomics on values. token: int32 [T]; row strides of y and dy free.
// Bytes: forward reads each row it needs and writes y (2 T h elements, the minimum). Backward reads dy once and reads
// and writes each row of dtable that occurs once; finding equal tokens reads 4 T bytes of tokens (from L2) for every
// token that occurs more than once, up to its last occurrence, and the counts take 8 bytes per row of the table.
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {
namespace {

template <class T>
struct Lookup {
  const int32_t* token;
  Rows<const T> table;
  int64_t first, table_rows;
  bool accumulate;
  Rows<T> y;
  template <int N>
  __device__ void at(int64_t r, int64_t c) const {
    const int64_t id = global_read(token + r) - first;
    const bool here = id >= 0 && id < table_rows;
    float v[N];
    if (!here) {
      if (accumulate) return;
      TRIAX_UNROLL
      for (int i = 0; i < N; ++i) v[i] = 0;
      return store(y.at(r, c), v);
    }
    load(table.at(id, c), v);
    if (accumulate) {
      float sum[N];
      load(y.at(r, c), sum);
      TRIAX_UNROLL
      for (int i = 0; i < N; ++i) v[i] += sum[i];
    }
    store(y.at(r, c), v);
  }
};

/// count[id] = how often the token occurs, head[id] = its first row. Both are the same in every order of the threads.
__global__ void __launch_bounds__(kBlock)
    count_tokens(const int32_t* token, int64_t rows, int64_t first, int64_t table_rows, int* count, int* head) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (r >= rows) return;
  const int64_t id = global_read(token + r) - first;
  if (id < 0 || id >= table_rows) return;
  global_atomic_add(&count[id], 1);
  // Memory is set to 0 before, so the head is kept as rows - r and the first row is the largest.
  global_atomic_max(&head[id], static_cast<int>(rows - r));
}

constexpr int kEmbeddingBlock = 128;

/// Block (r, tile of columns): nothing unless r is the first row of its token; else all rows of that token, in order.
template <class G, class T, int V>
__global__ void __launch_bounds__(kEmbeddingBlock)
    sum_rows_of_token(const int32_t* token, int64_t rows, int64_t first, Rows<const T> dy, int64_t cols,
                      const int* count, const int* head, Rows<G> dtable, int64_t table_rows) {
  __shared__ int found[kEmbeddingBlock];
  __shared__ int mine, times;  // 0: nothing to do
  const int64_t r = blockIdx.x;
  if (threadIdx.x == 0) {
    mine = global_read(token + r);
    times = 0;
    const int64_t row = mine - first;
    if (row >= 0 && row < table_rows && rows - global_read(head + row) == r) times = global_read(count + row);
  }
  __syncthreads();
  int left = times - 1;
  if (left < 0) return;
  const int64_t id = mine - first;
  const int64_t c = (static_cast<int64_t>(blockIdx.y) * kEmbeddingBlock + threadIdx.x) * V;
  const bool active = c + V <= cols;
  float sum[V], v[V];
  TRIAX_UNROLL
  for (int i = 0; i < V; ++i) sum[i] = 0;
  if (active) {
    load(dtable.at(id, c), sum);
    load(dy.at(r, c), v);
    TRIAX_UNROLL
    for (int i = 0; i < V; ++i) sum[i] += v[i];
  }
  for (int64_t begin = r + 1; left > 0; begin += kEmbeddingBlock) {
    const int64_t other = begin + threadIdx.x;
    found[threadIdx.x] = other < rows && global_read(token + other) == mine ? 1 : 0;
    __syncthreads();
    for (int j = 0; j < kEmbeddingBlock && left > 0; ++j) {
      if (found[j] == 0) continue;
      --left;
      if (!active) continue;
      load(dy.at(begin + j, c), v);
      TRIAX_UNROLL
      for (int i = 0; i < V; ++i) sum[i] += v[i];
    }
    __syncthreads();
  }
  if (active) store(dtable.at(id, c), sum);
}

}  // namespace

void CudaDevice::embedding_forward(Tensor token, Tensor table, int64_t first, Accumulate accumulate, Tensor y) {
  need_vector("embedding_forward", "token", token, DType::Int32, y.rows());
  need_matrix("embedding_forward", "table", table, y.dtype(), table.rows(), y.cols());
  with_type("embedding_forward", y.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const Lookup<T> body{token.as<int32_t>(), {table.as<T>(), table.row_stride()}, first,
                         table.rows(),        accumulate == Accumulate::Yes,       rows_of<T>(y)};
    aligned_for(table, kVector<T>) && aligned_for(y, kVector<T>)
        ? launch_elements<kVector<T>>(y.rows(), y.cols(), body, stream())
        : launch_elements<1>(y.rows(), y.cols(), body, stream());
  });
}

void CudaDevice::embedding_backward(Tensor token, Tensor dy, int64_t first, Tensor dtable) {
  const int64_t rows = dy.rows(), cols = dy.cols();
  need_vector("embedding_backward", "token", token, DType::Int32, rows);
  need_matrix("embedding_backward", "dtable", dtable, dtable.dtype(), dtable.rows(), cols);
  ensure(rows < (int64_t{1} << 31), "embedding_backward: too many rows");
  if (dy.numel() == 0 || dtable.numel() == 0) return;
  const Buffer memory = scratch(DType::Int32, 2 * dtable.rows());
  TRIAX_CUDA(cudaMemsetAsync(memory.data(), 0, static_cast<size_t>(8 * dtable.rows()), stream()));
  int* const count = static_cast<int*>(memory.data());
  int* const head = count + dtable.rows();
  TRIAX_LAUNCH(count_tokens, grid_of(rows, kBlock), kBlock, 0, stream(), token.as<int32_t>(), rows, first,
               dtable.rows(), count, head);
  with_type("embedding_backward", dy.dtype(), [&](auto from) {
    with_type("embedding_backward", dtable.dtype(), [&](auto to) {
      using T = typename decltype(from)::type;
      using G = typename decltype(to)::type;
      const auto launch = [&](auto width) {
        constexpr int V = decltype(width)::value;
        const dim3 grid(static_cast<unsigned>(rows), grid_of(cols, kEmbeddingBlock * V));
        TRIAX_LAUNCH((sum_rows_of_token<G, T, V>), grid, kEmbeddingBlock, 0, stream(), token.as<int32_t>(), rows, first,
                     Rows<const T>{dy.as<T>(), dy.row_stride()}, cols, count, head, rows_of<G>(dtable), dtable.rows());
      };
      constexpr int kWide = kVector<T, G>;
      cols % kWide == 0 && aligned_for(dy, kWide) && aligned_for(dtable, kWide)
          ? launch(std::integral_constant<int, kWide>())
          : launch(std::integral_constant<int, 1>());
    });
  });
}

}  // namespace triax::kernels

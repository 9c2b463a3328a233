// The k elements of a = x + residual of largest magnitude, by index; residual = a where not taken, else 0. Exact,
// without order among threads to matter: the bits of the k-th largest magnitude come digit by digit (11, 11 and 9 bits)
// from histograms, equals go to the lowest indices, places in the result from counts of chunks.
// Bytes: x and residual are read once and a is written; a is read again for two digits, the counts and the result: 28 n
// + 8 k with a residual, 20 n + 8 k without, 32 for each cleared element, and for each digit up to 16 KiB of histogram
// for each of at most 512 blocks. One pass over a is what no exact selection of this kind gets to: 28 n is its minimum.
#include "kernels/cuda/block.h"
#include "kernels/cuda/code_blocks.h"
#include "kernels/cuda/cuda_compression.h"
#include "kernels/cuda/elements.h"

namespace triax::kernels {
namespace {

constexpr int kDigits = 3, kDigitBits = 11, kBins = 1 << kDigitBits;
constexpr int kRound = 16;
/// Enough to fill a GPU; each adds its own histogram to the common one.
constexpr int64_t kHistogramBlocks = 512;
constexpr int64_t kChunk = int64_t{kBlock} * kRound;

/// Where the search stands; and behind it, in the same scratch memory, the histogram and two counts for each chunk.
struct Selection {
  unsigned prefix, known;  // bits that are settled, and which
  int left;                // of the k, those that share the prefix
  int unused;
};

__host__ __device__ constexpr int shift_of(int digit) { return digit == 0 ? 20 : digit == 1 ? 9 : 0; }
__host__ __device__ constexpr int width_of(int digit) { return digit == 2 ? 9 : kDigitBits; }

/// In the order of the search. All NaNs are one: which bits a sum gives one is the device's own.
__device__ __forceinline__ unsigned magnitude(float v) {
  const unsigned bits = __float_as_uint(v) & 0x7fffffffu;
  return bits > 0x7f800000u ? 0x7fffffffu : bits;
}

/// Digit 0 also adds the residual.
template <int kDigit>
__global__ void __launch_bounds__(kBlock)
    count_digits(const float* x, float* residual, int64_t n, const Selection* state, int* histogram) {
  __shared__ int counts[kBins];
  for (int bin = threadIdx.x; bin < kBins; bin += kBlock) counts[bin] = 0;
  const unsigned prefix = kDigit == 0 ? 0 : global_read(&state->prefix);
  const unsigned known = kDigit == 0 ? 0 : global_read(&state->known);
  __syncthreads();
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x; i < n;
       i += static_cast<int64_t>(gridDim.x) * kBlock) {
    float a = global_read((kDigit == 0 || residual == nullptr ? x : residual) + i);
    if (kDigit == 0 && residual != nullptr) {
      const float rest = global_read(residual + i);
      if (rest != 0) a = __fadd_rn(a, rest);  // -0 + 0 is not -0
      global_write(residual + i, a);
    }
    const unsigned bits = magnitude(a);
    if ((bits & known) == prefix) atomicAdd(&counts[bits >> shift_of(kDigit) & ((1u << width_of(kDigit)) - 1)], 1);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += kBlock) {
    if (counts[bin] != 0) global_atomic_add(histogram + bin, counts[bin]);
  }
}

/// One block: the digit in which the k-th largest lies. Clears the histogram for the next digit.
template <int kDigit>
__global__ void __launch_bounds__(kBlock) settle_digit(int k, Selection* state, int* histogram) {
  __shared__ int counts[kBins];
  __shared__ int of_thread[kBlock];
  constexpr int kEach = kBins / kBlock;
  int sum = 0;
  for (int j = 0; j < kEach; ++j) {
    const int bin = kBins - 1 - (static_cast<int>(threadIdx.x) * kEach + j);  // from the largest down
    counts[bin] = global_read(histogram + bin);
    global_write(histogram + bin, 0);
    sum += counts[bin];
  }
  of_thread[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int left = kDigit == 0 ? k : global_read(&state->left), thread = 0;
  while (of_thread[thread] < left) left -= of_thread[thread++];
  int bin = kBins - 1 - thread * kEach;
  while (counts[bin] < left) left -= counts[bin--];
  const unsigned mask = ((1u << width_of(kDigit)) - 1) << shift_of(kDigit);
  const unsigned digit = static_cast<unsigned>(bin) << shift_of(kDigit);
  global_write(&state->prefix, (kDigit == 0 ? 0 : global_read(&state->prefix)) | digit);
  global_write(&state->known, (kDigit == 0 ? 0 : global_read(&state->known)) | mask);
  global_write(&state->left, left);
}

/// Of each chunk, the elements above the threshold and those equal to it.
__global__ void __launch_bounds__(kBlock)
    count_taken(const float* a, int64_t n, const Selection* state, int* above, int* equal) {
  __shared__ BlockScratch<int> of_above, of_equal;
  const unsigned threshold = global_read(&state->prefix);
  const int64_t begin = blockIdx.x * kChunk, end = begin + kChunk < n ? begin + kChunk : n;
  int more = 0, same = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kBlock) {
    const unsigned bits = magnitude(global_read(a + i));
    more += bits > threshold ? 1 : 0;
    same += bits == threshold ? 1 : 0;
  }
  more = block_sum(more, of_above);
  same = block_sum(same, of_equal);
  if (threadIdx.x == 0) global_write(above + blockIdx.x, more), global_write(equal + blockIdx.x, same);
}

/// One block: counts become sums over the chunks before.
__global__ void __launch_bounds__(kBlock) sum_before(int* above, int* equal, int chunks) {
  __shared__ int of_above[kBlock], of_equal[kBlock];
  const int each = (chunks + kBlock - 1) / kBlock;
  const int begin = static_cast<int>(threadIdx.x) * each, end = begin + each < chunks ? begin + each : chunks;
  int more = 0, same = 0;
  for (int c = begin; c < end; ++c) more += global_read(above + c), same += global_read(equal + c);
  of_above[threadIdx.x] = more, of_equal[threadIdx.x] = same;
  __syncthreads();
  more = same = 0;
  for (unsigned t = 0; t < threadIdx.x; ++t) more += of_above[t], same += of_equal[t];
  for (int c = begin; c < end; ++c) {
    const int here_above = global_read(above + c), here_equal = global_read(equal + c);
    global_write(above + c, more), global_write(equal + c, same);
    more += here_above, same += here_equal;
  }
}

/// Writes a chunk's part of the result; `clear`: where the taken elements become 0, or null.
__global__ void __launch_bounds__(kBlock)
    write_taken(const float* a, float* clear, int64_t n, const Selection* state, const int* above, const int* equal,
                int base, float* value, int32_t* index) {
  constexpr int kWarps = kBlock / static_cast<int>(kWarp);
  __shared__ int more_of[2][kWarps], same_of[2][kWarps];
  const unsigned threshold = global_read(&state->prefix);
  const int equals = global_read(&state->left);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  int more = global_read(above + blockIdx.x), same = global_read(equal + blockIdx.x);
  for (int round = 0; round < kRound; ++round) {
    const int64_t i = blockIdx.x * kChunk + round * kBlock + threadIdx.x;
    const float v = i < n ? global_read(a + i) : 0;
    const unsigned bits = magnitude(v);
    const bool is_more = i < n && bits > threshold, is_same = i < n && bits == threshold;
    const unsigned more_lanes = __ballot_sync(kAllLanes, is_more), same_lanes = __ballot_sync(kAllLanes, is_same);
    if (lane == 0) more_of[round % 2][warp] = __popc(more_lanes), same_of[round % 2][warp] = __popc(same_lanes);
    __syncthreads();
    int more_here = 0, same_here = 0, more_before = 0, same_before = 0;
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp) more_before = more_here, same_before = same_here;
      more_here += more_of[round % 2][w], same_here += same_of[round % 2][w];
    }
    const unsigned lower = (1u << lane) - 1;
    more_before += more + __popc(more_lanes & lower), same_before += same + __popc(same_lanes & lower);
    if (is_more || (is_same && same_before < equals)) {
      const int place = more_before + (same_before < equals ? same_before : equals);
      global_write(value + place, v);
      global_write(index + place, static_cast<int32_t>(base + i));
      if (clear != nullptr) global_write(clear + i, 0.0f);
    }
    more += more_here, same += same_here;
  }
}

int64_t chunks_of(int64_t n) { return (n + kChunk - 1) / kChunk; }

}  // namespace

void CudaCompression::top_k(std::span<const TopK> tensors) {
  int64_t longest = 0;
  for (const TopK& t : tensors) {
    const int64_t n = t.x.numel(), k = t.value.numel();
    need_vector("top_k", "x", t.x, DType::Float32, n);
    need_vector("top_k", "value", t.value, DType::Float32, k);
    need_vector("top_k", "index", t.index, DType::Int32, k);
    if (t.residual) need_vector("top_k", "residual", t.residual, DType::Float32, n);
    ensure(k >= 1 && k <= n && t.base >= 0 && t.base + n < int64_t{1} << 31, "top_k: 1 <= k <= n, indices of 31 bits");
    longest = std::max(longest, n);
  }
  if (longest == 0) return;
  const int64_t ints = static_cast<int64_t>(sizeof(Selection)) / 4 + kBins + 2 * chunks_of(longest);
  const cudaStream_t compute = queue();  // what is put off has its scratch first
  const Buffer scratch = workspace_->allocate(DType::Int32, ints, MemoryCategory::Workspace);
  // The histogram begins as zeros, and every digit leaves it so.
  TRIAX_CUDA(cudaMemsetAsync(scratch.data(), 0, sizeof(Selection) + 4 * kBins, compute));
  for (const TopK& t : tensors) select(t, scratch.data());
}

void CudaCompression::select(const TopK& t, void* scratch) {
  auto* const state = static_cast<Selection*>(scratch);
  int* const histogram = reinterpret_cast<int*>(state + 1);
  const int64_t n = t.x.numel(), chunks = chunks_of(n);
  int *const above = histogram + kBins, *const equal = above + chunks;
  const auto k = static_cast<int>(t.value.numel());
  const float* const x = t.x.as<float>();
  auto* const residual = static_cast<float*>(t.residual.data());
  const auto digit = [&](auto which) {
    constexpr int kDigit = decltype(which)::value;
    const auto blocks = static_cast<unsigned>(std::min(chunks, kHistogramBlocks));
    TRIAX_LAUNCH((count_digits<kDigit>), blocks, kBlock, 0, queue(), x, residual, n, state, histogram);
    TRIAX_LAUNCH((settle_digit<kDigit>), 1u, kBlock, 0, queue(), k, state, histogram);
  };
  static_assert(kDigits == 3);
  digit(std::integral_constant<int, 0>());
  digit(std::integral_constant<int, 1>());
  digit(std::integral_constant<int, 2>());
  const float* const a = residual != nullptr ? residual : x;
  TRIAX_LAUNCH(count_taken, static_cast<unsigned>(chunks), kBlock, 0, queue(), a, n, state, above, equal);
  TRIAX_LAUNCH(sum_before, 1u, kBlock, 0, queue(), above, equal, static_cast<int>(chunks));
  TRIAX_LAUNCH(write_taken, static_cast<unsigned>(chunks), kBlock, 0, queue(), a, residual, n, state, above, equal,
               static_cast<int>(t.base), t.value.as<float>(), t.index.as<int32_t>());
}

}  // namespace triax::kernels

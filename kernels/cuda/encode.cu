// Block codes of a flat gradient (kernels/compression.h): a = x + residual, its code and scale into the packed bytes,
// residual = a - sent. One CUDA block for each code block, a in shared memory (up to 32 KiB); sums in the CPU's 16
// lanes. Bytes per element: x 4, residual 8, codes 1 (int8, Qsgd), 1/8 (sign) or 2 (bf16), 4 per block for its scale:
// the minimum.
#include "kernels/cuda/block.h"
#include "kernels/cuda/code_blocks.h"
#include "kernels/cuda/cuda_compression.h"
#include "kernels/cuda/elements.h"
#include "kernels/dropout_key.h"

namespace triax::kernels {
namespace {

constexpr int kSumLanes = 16;
constexpr float kLeastScale = 1e-36F;  // below, 1 / scale could overflow: the block counts as zeros

struct EncodeArgs {
  const float* x;
  float* residual;  // or null
  uint8_t* packed;
  int levels;
  DrawKey draw;
};

/// Sum over a block's elements of f(a), element i in lane i % 16, lanes in order; the same in every thread.
template <class F>
__device__ float sum_of(const float* a, int n, float (&lanes)[kSumLanes], F&& f) {
  if (threadIdx.x < kSumLanes) {
    float lane = 0;
    for (int i = threadIdx.x; i < n; i += kSumLanes) lane = __fadd_rn(lane, f(a[i]));
    lanes[threadIdx.x] = lane;
  }
  __syncthreads();
  float sum = 0;
  for (int l = 0; l < kSumLanes; ++l) sum = __fadd_rn(sum, lanes[l]);
  return sum;
}

/// By bits: a NaN is larger than all.
__device__ float largest_magnitude(const float* a, int n, BlockScratch<unsigned>& scratch) {
  unsigned most = 0;
  for (int i = threadIdx.x; i < n; i += kCodeThreads) {
    const unsigned bits = __float_as_uint(a[i]) & 0x7fffffffu;
    most = bits > most ? bits : most;
  }
  TRIAX_UNROLL
  for (int distance = 16; distance > 0; distance /= 2) {
    const unsigned other = __shfl_xor_sync(kAllLanes, most, distance);
    most = other > most ? other : most;
  }
  if (threadIdx.x % kWarp == 0) scratch.of_warp[threadIdx.x / kWarp] = most;
  __syncthreads();
  for (unsigned w = 0; w < kCodeThreads / kWarp; ++w) most = scratch.of_warp[w] > most ? scratch.of_warp[w] : most;
  return __uint_as_float(most);
}

/// A NaN becomes the upper bound (the scale tells it).
__device__ __forceinline__ float clamp_code(float q, float bound) {
  q = q < bound ? q : bound;
  return q > -bound ? q : -bound;
}

/// Uniform in [0, 1) of a global index.
__device__ float draw_uniform(const DrawKey& key, uint64_t stream, uint64_t at) {
  const DropoutKey philox_key = {
      {static_cast<uint32_t>(key.seed ^ stream), static_cast<uint32_t>(key.seed >> 32 ^ stream >> 32) ^ 0x51534744U}};
  const PhiloxWords words =
      dropout_philox({{static_cast<uint32_t>(at >> 2), static_cast<uint32_t>(at >> 34), static_cast<uint32_t>(key.step),
                       static_cast<uint32_t>(key.step >> 32) ^ key.sender << 8}},
                     philox_key);
  const uint64_t place = at & 3;
  const uint32_t word =
      place < 2 ? (place == 0 ? words.word[0] : words.word[1]) : (place == 2 ? words.word[2] : words.word[3]);
  return static_cast<float>(word >> 8) * 0x1p-24F;
}

/// The scale of a block and, in `code`, what codes its elements; all threads have the scale.
struct BlockOfCodes {
  const float* a;  // [n], shared memory
  int n;
  float* residual;  // or null
  uint8_t* code;

  __device__ void keep_rest(int i, float sent) const {
    if (residual != nullptr) global_write(residual + i, __fsub_rn(a[i], sent));
  }
  __device__ void put(int i, int q, float scale) const {
    const auto byte = static_cast<int8_t>(q);
    global_write(code + i, static_cast<uint8_t>(byte));
    keep_rest(i, decoded(byte, scale));
  }
};

__device__ float int8_code(const BlockOfCodes& b, BlockScratch<unsigned>& scratch) {
  const float scale = largest_magnitude(b.a, b.n, scratch) / 127.0f, sent = scale < kLeastScale ? 0.0f : scale;
  const float inverse = scale < kLeastScale ? 0.0f : 1.0f / scale;
  for (int i = threadIdx.x; i < b.n; i += kCodeThreads) {
    b.put(i, static_cast<int>(rintf(clamp_code(__fmul_rn(b.a[i], inverse), 127.0f))), sent);
  }
  return sent;
}

__device__ float qsgd_code(const BlockOfCodes& b, const EncodeArgs& args, const CodeSegment& s, int64_t begin,
                           float (&lanes)[kSumLanes]) {
  const float squares = sum_of(b.a, b.n, lanes, [](float v) { return __fmul_rn(v, v); });
  const double exact = sqrt(static_cast<double>(squares)) / args.levels;
  // Up, so that |a| / scale cannot exceed the levels by rounding.
  const float scale = nextafterf(static_cast<float>(exact), INFINITY), sent = scale < kLeastScale ? 0.0f : scale;
  const float divisor = scale < kLeastScale ? INFINITY : scale;
  const int64_t place = s.phase + begin, row = place / s.row_length;
  const int64_t global = s.global_begin + row * s.global_row + place - row * s.row_length;
  for (int i = threadIdx.x; i < b.n; i += kCodeThreads) {
    const float v = b.a[i], u = draw_uniform(args.draw, s.stream, static_cast<uint64_t>(global + i));
    const float magnitude = v < 0 ? -v : v;
    const int q = static_cast<int>(clamp_code(magnitude / divisor + u, static_cast<float>(args.levels)));
    b.put(i, v < 0 ? -q : q, sent);
  }
  return sent;
}

__device__ float sign_code(const BlockOfCodes& b, float (&lanes)[kSumLanes]) {
  const float sum = sum_of(b.a, b.n, lanes, [](float v) { return v < 0 ? -v : v; });
  const float scale = sum / static_cast<float>(b.n);
  for (int byte = threadIdx.x; byte * 8 < b.n; byte += kCodeThreads) {
    unsigned bits = 0;
    for (int i = 0; i < 8 && byte * 8 + i < b.n; ++i) bits |= (b.a[byte * 8 + i] >= 0 ? 1u : 0u) << i;
    global_write(b.code + byte, static_cast<uint8_t>(bits));
  }
  for (int i = threadIdx.x; i < b.n; i += kCodeThreads) b.keep_rest(i, b.a[i] >= 0 ? scale : -scale);
  return scale;
}

template <Codec kCodec>
__global__ void __launch_bounds__(kCodeThreads)
    encode_blocks(const __grid_constant__ CodeTable table, const __grid_constant__ EncodeArgs args) {
  TRIAX_DYNAMIC_SHARED(memory);
  __shared__ BlockScratch<unsigned> scratch;
  __shared__ float lanes[kSumLanes];
  auto* const a = reinterpret_cast<float*>(memory);
  const int which = segment_of(table, static_cast<int>(blockIdx.x));
  const CodeSegment& s = table.of[which];
  const int64_t k = static_cast<int>(blockIdx.x) - table.first[which];
  const CodeBlock block = code_block(s, k);
  const auto n = static_cast<int>(block.n);
  float* const residual = args.residual == nullptr ? nullptr : args.residual + s.state + block.begin;
  for (int i = threadIdx.x; i < n; i += kCodeThreads) {
    const float v = global_read(args.x + s.begin + block.begin + i);
    a[i] = residual == nullptr ? v : __fadd_rn(global_read(residual + i), v);
  }
  __syncthreads();
  uint8_t* const scales = args.packed + s.packed;
  uint8_t* const codes = scales + 4 * table.blocks[which];
  const BlockOfCodes b{a, n, residual, codes + (kCodec == Codec::Sign ? block.sign_bytes : block.begin)};
  float scale;
  if constexpr (kCodec == Codec::Sign) {
    scale = sign_code(b, lanes);
  } else if constexpr (kCodec == Codec::Int8) {
    scale = int8_code(b, scratch);
  } else {
    scale = qsgd_code(b, args, s, block.begin, lanes);
  }
  if (threadIdx.x == 0) global_write(reinterpret_cast<float*>(scales) + k, scale);
}

__global__ void __launch_bounds__(kCodeThreads)
    encode_bf16(const __grid_constant__ CodeTable table, const __grid_constant__ EncodeArgs args) {
  const int which = segment_of(table, static_cast<int>(blockIdx.x));
  const CodeSegment& s = table.of[which];
  const int64_t begin = (static_cast<int>(blockIdx.x) - table.first[which]) * kPlainRun;
  const int64_t end = begin + kPlainRun < s.count ? begin + kPlainRun : s.count;
  for (int64_t i = begin + threadIdx.x; i < end; i += kCodeThreads) {
    float a = global_read(args.x + s.begin + i);
    float* const residual = args.residual == nullptr ? nullptr : args.residual + s.state + i;
    if (residual != nullptr) a = __fadd_rn(a, global_read(residual));
    const bf16 sent = from_float<bf16>(a);
    global_write(reinterpret_cast<bf16*>(args.packed + s.packed) + i, sent);
    if (residual != nullptr) global_write(residual, __fsub_rn(a, to_float(sent)));
  }
}

}  // namespace

void CudaCompression::encode(const Encode& args) {
  need_vector("encode", "x", args.x, DType::Float32, args.x.numel());
  need_vector("encode", "packed", args.packed, DType::UInt8, args.packed.numel());
  if (args.residual) need_vector("encode", "residual", args.residual, DType::Float32, args.residual.numel());
  ensure(args.codec != Codec::Qsgd || (args.levels >= 1 && args.levels <= 127), "encode: 1 to 127 levels");
  const EncodeArgs device{args.x.as<float>(), static_cast<float*>(args.residual.data()), args.packed.as<uint8_t>(),
                          args.levels, args.draw};
  for_tables(args.codec, args.segments, args.x, args.packed, [&](const CodeTable& table, unsigned blocks) {
    int64_t longest = 0;
    for (int i = 0; i < table.count; ++i) {
      const CodeSegment& s = table.of[i];
      longest = std::max(longest, std::min({s.block_length, s.row_length, s.count}));
      ensure(!args.residual || (s.state >= 0 && s.state + s.count <= args.residual.numel()), "encode: residual");
    }
    const auto shared = static_cast<size_t>(4 * longest);
    switch (args.codec) {
      case Codec::BFloat16:
        TRIAX_LAUNCH(encode_bf16, blocks, kCodeThreads, 0, queue(), table, device);
        break;
      case Codec::Int8:
        TRIAX_LAUNCH(encode_blocks<Codec::Int8>, blocks, kCodeThreads, shared, queue(), table, device);
        break;
      case Codec::Qsgd:
        TRIAX_LAUNCH(encode_blocks<Codec::Qsgd>, blocks, kCodeThreads, shared, queue(), table, device);
        break;
      case Codec::Sign:
        TRIAX_LAUNCH(encode_blocks<Codec::Sign>, blocks, kCodeThreads, shared, queue(), table, device);
        break;
    }
  });
}

}  // namespace triax::kernels

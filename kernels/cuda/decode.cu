// y = (Store) or += (Add) what packed block codes say, segment by segment (kernels/compression.h); and of selected
// elements: y[index[i]] = or += value[i]. Bytes: the codes are read, y is written (Add: read and written) once.
#include "kernels/cuda/code_blocks.h"
#include "kernels/cuda/cuda_compression.h"
#include "kernels/cuda/elements.h"

namespace triax::kernels {
namespace {

template <bool kAdd>
__device__ __forceinline__ void put(float* y, float value) {
  global_write(y, kAdd ? __fadd_rn(global_read(y), value) : value);
}

template <Codec kCodec, bool kAdd>
__global__ void __launch_bounds__(kCodeThreads)
    decode_blocks(const __grid_constant__ CodeTable table, const uint8_t* packed, float* y) {
  const int which = segment_of(table, static_cast<int>(blockIdx.x));
  const CodeSegment& s = table.of[which];
  const int64_t k = static_cast<int>(blockIdx.x) - table.first[which];
  const uint8_t* const scales = packed + s.packed;
  if constexpr (kCodec == Codec::BFloat16) {
    const int64_t begin = k * kPlainRun, end = begin + kPlainRun < s.count ? begin + kPlainRun : s.count;
    for (int64_t i = begin + threadIdx.x; i < end; i += kCodeThreads) {
      put<kAdd>(y + s.begin + i, to_float(global_read(reinterpret_cast<const bf16*>(scales) + i)));
    }
  } else {
    __shared__ float shared_scale;
    __shared__ uint8_t bits[kLongestBlock / 8];
    const CodeBlock block = code_block(s, k);
    const uint8_t* const codes = scales + 4 * table.blocks[which];
    if (threadIdx.x == 0) shared_scale = global_read(reinterpret_cast<const float*>(scales) + k);
    if constexpr (kCodec == Codec::Sign) {
      for (int i = threadIdx.x; i * 8 < block.n; i += kCodeThreads) bits[i] = global_read(codes + block.sign_bytes + i);
    }
    __syncthreads();
    const float scale = shared_scale;
    float* const out = y + s.begin + block.begin;
    for (int i = threadIdx.x; i < block.n; i += kCodeThreads) {
      if constexpr (kCodec == Codec::Sign) {
        put<kAdd>(out + i, (bits[i / 8] >> (i % 8) & 1) != 0 ? scale : -scale);
      } else {
        put<kAdd>(out + i, decoded(static_cast<int8_t>(global_read(codes + block.begin + i)), scale));
      }
    }
  }
}

template <bool kAdd>
__global__ void __launch_bounds__(kBlock)
    scatter_values(const int32_t* index, const float* value, int64_t n, float* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i < n) put<kAdd>(y + global_read(index + i), global_read(value + i));
}

/// f(std::bool_constant<Add>).
template <class F>
void with_mode(Decode mode, F&& f) {
  mode == Decode::Add ? f(std::true_type()) : f(std::false_type());
}

}  // namespace

void CudaCompression::decode(Codec codec, std::span<const CodeSegment> segments, Tensor packed, Tensor y, Decode mode) {
  need_vector("decode", "y", y, DType::Float32, y.numel());
  need_vector("decode", "packed", packed, DType::UInt8, packed.numel());
  const uint8_t* const bytes = packed.as<uint8_t>();
  float* const out = y.as<float>();
  for_tables(codec, segments, y, packed, [&](const CodeTable& table, unsigned blocks) {
    with_mode(mode, [&](auto add) {
      constexpr bool kAdd = decltype(add)::value;
      switch (codec) {
        case Codec::BFloat16:
          TRIAX_LAUNCH((decode_blocks<Codec::BFloat16, kAdd>), blocks, kCodeThreads, 0, queue(), table, bytes, out);
          break;
        case Codec::Sign:
          TRIAX_LAUNCH((decode_blocks<Codec::Sign, kAdd>), blocks, kCodeThreads, 0, queue(), table, bytes, out);
          break;
        default:
          TRIAX_LAUNCH((decode_blocks<Codec::Int8, kAdd>), blocks, kCodeThreads, 0, queue(), table, bytes, out);
      }
    });
  });
}

void CudaCompression::scatter(Tensor index, Tensor value, Tensor y, Decode mode) {
  const int64_t n = value.numel();
  need_vector("scatter", "index", index, DType::Int32, n);
  need_vector("scatter", "value", value, DType::Float32, n);
  need_vector("scatter", "y", y, DType::Float32, y.numel());
  if (n == 0) return;
  with_mode(mode, [&](auto add) {
    TRIAX_LAUNCH((scatter_values<decltype(add)::value>), grid_of(n, kBlock), kBlock, 0, queue(), index.as<int32_t>(),
                 value.as<float>(), n, y.as<float>());
  });
}

}  // namespace triax::kernels

// Segments of block codes as kernels see them: one CUDA block for each code block, found by arithmetic where the CPU
// walks (for_blocks of kernels/compression.h).
#pragma once

#include <algorithm>
#include <span>

#include "base/error.h"
#include "kernels/compression.h"
#include "kernels/cuda/global_memory.h"
#include "kernels/cuda/types.h"

namespace triax::kernels {

inline constexpr int kCodeThreads = 128;
/// Segments of one launch: what fits a kernel's arguments (4 KiB).
inline constexpr int kCodeSegments = 40;
/// Elements that a CUDA block takes of a code without blocks (BFloat16).
inline constexpr int64_t kPlainRun = 2048;

struct CodeTable {
  CodeSegment of[kCodeSegments];
  int64_t blocks[kCodeSegments];  // of the segment
  int first[kCodeSegments];       // CUDA block of its first
  int count;
};

static_assert(sizeof(CodeTable) <= 4096 - 64);

/// A code block: elements begin .. begin + n of its segment; bytes of Sign codes before it.
struct CodeBlock {
  int64_t begin, n, sign_bytes;
};

__host__ __device__ inline int64_t blocks_in_row(const CodeSegment& s) {
  return (s.row_length + s.block_length - 1) / s.block_length;
}

/// blocks_of(s), without a walk.
__host__ __device__ inline int64_t count_blocks(const CodeSegment& s) {
  if (s.count == 0) return 0;
  const int64_t last = s.phase + s.count - 1;
  const int64_t lattice = last / s.row_length * blocks_in_row(s) + last % s.row_length / s.block_length;
  return lattice - s.phase / s.block_length + 1;
}

/// Block k of the segment: block k + phase / block_length of its lattice, where every row begins a new one.
__host__ __device__ inline CodeBlock code_block(const CodeSegment& s, int64_t k) {
  const int64_t in_row = blocks_in_row(s), skipped = s.phase / s.block_length;
  const auto end_of = [&](int64_t lattice) {
    const int64_t row = lattice / in_row, in_this = (lattice % in_row + 1) * s.block_length;
    const int64_t end = row * s.row_length + (in_this < s.row_length ? in_this : s.row_length) - s.phase;
    return end < s.count ? end : s.count;
  };
  const auto bytes_to = [&](int64_t lattice) {  // of Sign codes of whole blocks, from the lattice's beginning
    const int64_t whole = (s.block_length + 7) / 8;
    const int64_t last = (s.row_length - (in_row - 1) * s.block_length + 7) / 8;
    return lattice / in_row * ((in_row - 1) * whole + last) + lattice % in_row * whole;
  };
  CodeBlock block{};
  const int64_t lattice = skipped + k;
  if (k > 0) {
    block.begin = end_of(lattice - 1);
    block.sign_bytes = (end_of(skipped) + 7) / 8 + bytes_to(lattice) - bytes_to(skipped + 1);
  }
  block.n = end_of(lattice) - block.begin;
  return block;
}

/// packed_bytes(codec, s) of kernels/compression.h, without a walk.
inline int64_t packed_end(Codec codec, const CodeSegment& s) {
  const int64_t blocks = count_blocks(s);
  const CodeBlock last = code_block(s, blocks - 1);
  int64_t codes = s.count;
  if (codec == Codec::BFloat16) codes = 2 * s.count;
  if (codec == Codec::Sign) codes = last.sign_bytes + (last.n + 7) / 8;
  return (codec == Codec::BFloat16 ? 0 : 4 * blocks) + (codes + 3) / 4 * 4;
}

/// The segment of a CUDA block.
__device__ inline int segment_of(const CodeTable& table, int block) {
  int low = 0, high = table.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (table.first[middle] <= block ? low : high) = middle;
  }
  return low;
}

/// f(table, CUDA blocks) for as many tables as the segments need.
template <class F>
void for_tables(Codec codec, std::span<const CodeSegment> segments, const Tensor& flat, const Tensor& packed, F&& f) {
  CodeTable table;
  for (size_t i = 0; i < segments.size();) {
    int64_t blocks = 0;
    table.count = 0;
    for (; i < segments.size() && table.count < kCodeSegments; ++i) {
      const CodeSegment& s = segments[i];
      ensure(s.begin >= 0 && s.count >= 0 && s.begin + s.count <= flat.numel() && s.phase >= 0 &&
                 s.phase < s.row_length && s.block_length > 0 && s.block_length <= kLongestBlock,
             "compression: a segment outside of its array, or a block too long");
      if (s.count == 0) continue;
      ensure(s.packed >= 0 && s.packed % 4 == 0 && s.packed + packed_end(codec, s) <= packed.numel(),
             "compression: packed array too short");
      table.of[table.count] = s;
      table.blocks[table.count] = count_blocks(s);
      table.first[table.count++] = static_cast<int>(blocks);
      blocks += codec == Codec::BFloat16 ? (s.count + kPlainRun - 1) / kPlainRun : count_blocks(s);
    }
    ensure(blocks < int64_t{1} << 31, "compression: too many blocks");
    if (blocks > 0) f(table, static_cast<unsigned>(blocks));
  }
}

/// What one block's code and its scale stand for: the product is rounded before anything is added to it.
__device__ __forceinline__ float decoded(int8_t code, float scale) {
  return __fmul_rn(static_cast<float>(code), scale);
}

}  // namespace triax::kernels

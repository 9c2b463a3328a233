// The math of gradient compression on one device: block codes of a flat gradient, Top-K selection, the orthonormal
// factor of PowerSGD and the two updates of 1-bit Adam. Ranks and messages are unknown here (comm/compression).
// Flat arrays are fp32 or fp64; packed bytes are uint8.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/device.h"

namespace triax::kernels {

/// How a block of n elements is written.
///   BFloat16: n bf16, no scale.
///   Int8:     scale = max|x| / 127, n int8 = round(x / scale).
///   Qsgd:     scale = |x|_2 / levels rounded up, n int8 = sign(x) floor(|x| / scale + u), u uniform in [0, 1):
///   unbiased
///             (Alistarh 2017, arXiv 1610.02132, section 3.1).
///   Sign:     scale = mean|x|, n bits (1: x >= 0): what is sent is +-scale (Tang 2021, arXiv 2102.02888).
/// Scales are fp32. A block with an element that is not finite has a scale (or bf16) that is not finite.
enum class Codec : uint8_t { BFloat16, Int8, Qsgd, Sign };

/// A run of a flat array, cut into blocks: elements stand on a lattice of rows of `row_length`; a block ends at every
/// multiple of `block_length` within a row, at the end of a row and of the segment. Blocks that are chosen by global
/// rows and columns are the same in every layout.
struct CodeSegment {
  int64_t begin = 0;  ///< first element in the flat array
  int64_t count = 0;
  int64_t phase = 0;  ///< place of the first element in its row of the lattice, < row_length
  int64_t row_length = 1;
  int64_t block_length = 1;
  int64_t packed = 0;        ///< first byte in the packed array: scales, then codes, each filled up to 4 bytes
  int64_t state = 0;         ///< first element in the residual
  uint64_t stream = 0;       ///< of the tensor, for Qsgd's u
  int64_t global_begin = 0;  ///< index in the global tensor of lattice place 0
  int64_t global_row = 0;    ///< distance in the global tensor of two rows of the lattice
};

/// Calls f(first element in the segment, elements) block by block.
template <class F>
void for_blocks(const CodeSegment& s, F&& f) {
  int64_t place = s.phase;
  for (int64_t done = 0; done < s.count;) {
    const int64_t to_block_end = s.block_length - place % s.block_length;
    const int64_t to_row_end = s.row_length - place;
    int64_t n = to_block_end < to_row_end ? to_block_end : to_row_end;
    if (n > s.count - done) n = s.count - done;
    f(done, n);
    done += n;
    place = place + n == s.row_length ? 0 : place + n;
  }
}

/// The longest block there may be.
inline constexpr int64_t kLongestBlock = 8192;

int64_t blocks_of(const CodeSegment& segment);
/// Bytes of a segment: 4 per block (none for BFloat16), and n, 2n or the sum over blocks of ceil(n / 8), filled up
/// to 4.
int64_t packed_bytes(Codec codec, const CodeSegment& segment);

/// What random numbers depend on beside tensor and global index: the same in every layout of the same data replicas.
struct DrawKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t sender = 0;  ///< replica that draws
};

struct Encode {
  Codec codec = Codec::Int8;
  std::span<const CodeSegment> segments;
  Tensor x;          ///< flat [N], read
  Tensor residual;   ///< may be empty; taken into account and overwritten: a = x + residual; residual = a - sent
  Tensor packed;     ///< uint8
  int levels = 127;  ///< Qsgd: 1 to 127
  DrawKey draw{};
};

enum class Decode { Store, Add };

/// One tensor of a Top-K message.
struct TopK {
  Tensor x;         ///< [n], read
  Tensor residual;  ///< [n] or empty; a = x + residual; residual = a where not sent, else 0
  Tensor value;     ///< [k]: the k elements of a of largest magnitude (all NaNs largest; ties: lowest index), by index
  Tensor index;     ///< int32 [k], ascending, plus `base`
  int64_t base = 0;
};

/// Adam's update from a momentum that is already summed, with frozen second moment (Tang 2021, algorithm 1).
struct FrozenAdam {
  Tensor master, exp_avg, exp_avg_sq;  ///< fp32 or fp64
  double beta1 = 0.9, eps = 1e-8, weight_decay = 0;
  double inv_sqrt_correction2 = 1;  ///< 1 / sqrt(1 - beta2^t) of the step t at which the moment was frozen
};

class Compression {
 public:
  virtual ~Compression() = default;
  virtual void encode(const Encode& args) = 0;
  /// y[flat] = (Store) or += (Add) what the packed bytes say, segment by segment: bit for bit what encode called sent.
  virtual void decode(Codec codec, std::span<const CodeSegment> segments, Tensor packed, Tensor y, Decode mode) = 0;
  virtual void top_k(std::span<const TopK> tensors) = 0;
  /// y[index[i]] = (Store) or += (Add) value[i]; indices of one call differ.
  virtual void scatter(Tensor index, Tensor value, Tensor y, Decode mode) = 0;
  /// Makes the r rows of x[r, n] orthonormal, r <= n (modified Gram-Schmidt, twice). A row that depends on those before
  /// it is replaced by normal numbers of (seed, stream, row) made orthogonal to them, so the rows always span r
  /// dimensions.
  virtual void orthonormalize(Tensor x, uint64_t seed, uint64_t stream) = 0;
  /// g = beta * m + factor * g.
  virtual void momentum(Tensor m, double beta, double factor, Tensor g) = 0;
  /// w -= lr (m / (1 - beta1^t) / (sqrt(v) * inv_sqrt_correction2 + eps) + wd w); where v is 0, nothing was ever
  /// learned and w stays. No-op when step->skip is set.
  virtual void frozen_adam(const FrozenAdam& args, const StepBlock* step) = 0;
};

}  // namespace triax::kernels

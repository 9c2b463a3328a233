#include "comm/compression/code_pieces.h"

#include <algorithm>

#include "base/error.h"

namespace triax::comm {
namespace {

using kernels::CodeSegment;

constexpr int64_t kSegment = 32768;  // elements that a thread takes at a time

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// First end of a block at or behind local element i.
int64_t block_end(const CodeSegment& lattice, int64_t i) {
  const int64_t place = lattice.phase + i;
  const int64_t row = place / lattice.row_length;
  const int64_t in_row = place - row * lattice.row_length;
  const int64_t snapped = std::min(divide_up(in_row, lattice.block_length) * lattice.block_length, lattice.row_length);
  return row * lattice.row_length + snapped - lattice.phase;
}

/// Elements [begin, end) of the lattice's tensor as a segment that begins in the lattice's first row.
CodeSegment part_of(const CodeSegment& lattice, int64_t begin, int64_t end) {
  CodeSegment part = lattice;
  const int64_t place = lattice.phase + begin;
  const int64_t row = place / lattice.row_length;
  part.begin += begin;
  part.state += begin;
  part.count = end - begin;
  part.phase = place - row * lattice.row_length;
  part.global_begin += row * lattice.global_row;
  return part;
}

}  // namespace

CodeSegment lattice_of(const GradientTensor& t, int64_t block_length) {
  CodeSegment s{.begin = t.begin, .count = t.count, .stream = t.stream};
  const bool cut_columns = t.rows > 1 && t.cols != t.global_cols;
  if (t.rows == 1 || (t.cols < block_length && !cut_columns)) {
    // One row, by global index: of a vector, or of whole rows of a matrix.
    const int64_t rows = t.rows == 1 ? 1 : block_length / t.cols;
    const int64_t blocks = divide_up(t.global_cols, block_length);
    s.block_length = t.rows == 1 ? divide_up(t.global_cols, blocks) : rows * t.cols;
    s.phase = t.global_begin;
    s.row_length = t.rows == 1 ? t.global_cols : t.global_begin + t.count;
    s.global_row = s.row_length;
    return s;
  }
  s.row_length = t.cols;
  s.block_length = divide_up(t.global_cols, divide_up(t.global_cols, block_length));
  s.global_begin = t.global_begin;
  s.global_row = t.global_cols;
  return s;
}

CodePieces cut_pieces(const CompressedBucket& bucket, kernels::Codec codec, int64_t block_length, int ranks,
                      PieceCut cut, int64_t first_state) {
  int64_t total = 0;
  for (const GradientTensor& t : bucket.tensors) total += t.compressed ? t.count : 0;
  const int64_t flat = bucket.end - bucket.begin;
  ensure(cut == PieceCut::Blocks || flat % ranks == 0, "cut_pieces: the bucket is not padded to the group");
  CodePieces result;
  result.pieces.resize(static_cast<size_t>(ranks));
  int64_t before = 0;  // compressed elements of earlier tensors
  int piece = 0;
  for (const GradientTensor& t : bucket.tensors) {
    if (!t.compressed) continue;
    CodeSegment lattice = lattice_of(t, block_length);
    lattice.state = first_state + before;
    for (int64_t i = 0; i < t.count;) {
      // Last element of this piece, in elements of the tensor.
      const auto piece_end = [&](int p) {
        if (cut == PieceCut::Even) return bucket.begin + flat / ranks * (p + 1) - t.begin;
        if (p == ranks - 1) return t.count;
        const int64_t target = total * (p + 1) / ranks - before;
        return target <= 0 ? target : std::min(block_end(lattice, std::min(target, t.count)), t.count);
      };
      while (piece < ranks - 1 && piece_end(piece) <= i) ++piece;
      const int64_t end = std::min(piece_end(piece), t.count);
      while (i < end) {
        const int64_t next = std::min(block_end(lattice, std::min(i + kSegment, t.count)), end);
        result.pieces[static_cast<size_t>(piece)].push_back(part_of(lattice, i, next));
        i = next;
      }
    }
    before += t.count;
  }
  for (auto& segments : result.pieces) {
    int64_t bytes = 0;
    for (CodeSegment& s : segments) {
      s.packed = bytes;
      bytes += packed_bytes(codec, s);
    }
    result.piece_bytes = std::max(result.piece_bytes, bytes);
  }
  return result;
}

}  // namespace triax::comm

// Cuts the compressed tensors of a bucket into pieces, one for each rank of a group, and these into segments of blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/compression/bucket.h"
#include "kernels/compression.h"

namespace triax::comm {

/// Where the pieces end.
enum class PieceCut {
  Blocks,  ///< at ends of blocks, as even as these allow: blocks are the same whatever the number of ranks and stages
  Even,    ///< the bucket's flat range in equal pieces, as a ZeRO shard group owns them
};

/// `begin` and `state` of segments are complete; `packed` counts from the start of the piece's message.
struct CodePieces {
  std::vector<std::vector<kernels::CodeSegment>> pieces;  ///< [rank]
  int64_t piece_bytes = 0;                                ///< of the longest; all messages have this length
};

/// `first_state`: place in the residual of the bucket's first compressed element; later ones follow without gaps.
CodePieces cut_pieces(const CompressedBucket& bucket, kernels::Codec codec, int64_t block_length, int ranks,
                      PieceCut cut, int64_t first_state);

/// How blocks stand in a tensor: by global rows and columns. Whole rows of short tensors share a block; rows longer
/// than a block are cut evenly.
kernels::CodeSegment lattice_of(const GradientTensor& tensor, int64_t block_length);

}  // namespace triax::comm

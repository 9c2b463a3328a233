// A block-coded all-gather (ZeRO++ qwZ, Wang et al. 2023, arXiv 2306.10209 section 3.1): weights travel as int8 with
// one scale per block.
#pragma once

#include <cstdint>
#include <vector>

#include "base/memory.h"
#include "comm/communicator.h"
#include "kernels/compression.h"

namespace triax::comm {

/// Values are n equal pieces, one of each rank, in any of fp64, fp32, bf16, fp16; blocks count from the start of a
/// piece. All ranks, the owner too, end with what the code says, so they hold the same bits: whoever needs the exact
/// values keeps them elsewhere.
class CodedGather {
 public:
  /// `longest_piece`: elements; scratch of 4 bytes each (8 under fp64), MemoryCategory::Communication.
  CodedGather(Communicator& group, kernels::Device& device, Arena& arena, kernels::Codec codec, int64_t block_length,
              DType dtype, int64_t longest_piece);
  /// Bytes of a message of all ranks, for pieces of so many elements.
  int64_t message_bytes(int64_t piece) const;
  /// Codes this rank's piece of values [n * piece] and begins to send. `message`: uint8 [message_bytes(piece)], in use
  /// until finish(). Sent per rank: (n-1)/n of it.
  Work start(Tensor values, Tensor message);
  /// Decodes all pieces into values, once the work of start() is done.
  void finish(Tensor values, Tensor message);

 private:
  kernels::CodeSegment segment(int64_t piece) const;
  Communicator* group_;
  kernels::Device* device_;
  kernels::Codec codec_;
  int64_t block_length_;
  Buffer buffer_;
  Tensor scratch_;
};

}  // namespace triax::comm

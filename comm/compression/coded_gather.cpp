#include "comm/compression/coded_gather.h"

#include "base/error.h"

namespace triax::comm {

CodedGather::CodedGather(Communicator& group, kernels::Device& device, Arena& arena, kernels::Codec codec,
                         int64_t block_length, DType dtype, int64_t longest_piece)
    : group_(&group), device_(&device), codec_(codec), block_length_(block_length) {
  ensure(codec != kernels::Codec::Qsgd, "CodedGather: no random codes");
  const DType computed = dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  buffer_ = arena.allocate(computed, longest_piece, MemoryCategory::Communication);
  scratch_ = buffer_.view(computed, {longest_piece});
}

kernels::CodeSegment CodedGather::segment(int64_t piece) const {
  return {.begin = 0, .count = piece, .row_length = piece, .block_length = block_length_};
}

int64_t CodedGather::message_bytes(int64_t piece) const {
  return packed_bytes(codec_, segment(piece)) * group_->size();
}

Work CodedGather::start(Tensor values, Tensor message) {
  const int64_t piece = values.numel() / group_->size();
  const int64_t bytes = message.numel() / group_->size();
  ensure(message.numel() == message_bytes(piece) && piece <= scratch_.numel(), "CodedGather: message or piece size");
  const int64_t rank = group_->rank();
  const Tensor own = message.range(rank * bytes, (rank + 1) * bytes);
  const Tensor scratch = scratch_.range(0, piece);
  device_->copy(values.range(rank * piece, (rank + 1) * piece), scratch);
  const kernels::CodeSegment s = segment(piece);
  device_->compression()->encode({codec_, {&s, 1}, scratch, Tensor(), own});
  device_->synchronize();
  return group_->all_gather(own, message);
}

void CodedGather::finish(Tensor values, Tensor message) {
  const int64_t piece = values.numel() / group_->size();
  const int64_t bytes = message.numel() / group_->size();
  const Tensor scratch = scratch_.range(0, piece);
  const kernels::CodeSegment s = segment(piece);
  for (int64_t r = 0; r < group_->size(); ++r) {
    device_->compression()->decode(codec_, {&s, 1}, message.range(r * bytes, (r + 1) * bytes), scratch,
                                   kernels::Decode::Store);
    device_->copy(scratch, values.range(r * piece, (r + 1) * piece));
  }
  device_->synchronize();
}

}  // namespace triax::comm

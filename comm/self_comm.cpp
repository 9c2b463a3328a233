#include "comm/self_comm.h"

#include <cstring>

namespace triax::comm {

Work SelfCommunicator::copy_over(const Tensor& in, const Tensor& out) {
  ensure(in.contiguous() && out.contiguous() && in.dtype() == out.dtype() && in.numel() == out.numel(),
         "collective of one rank: in and out alike and contiguous");
  if (in.data() == out.data() || in.bytes() == 0) return Work();
  if (device_ != nullptr) {
    device_->copy(in.flat(), out.flat());
  } else {
    std::memmove(out.data(), in.data(), static_cast<size_t>(in.bytes()));
  }
  return Work();
}

Work SelfCommunicator::all_reduce(Tensor, ReduceOp) { return Work(); }
Work SelfCommunicator::reduce(Tensor, ReduceOp, int) { return Work(); }
Work SelfCommunicator::all_gather(Tensor in, Tensor out) { return copy_over(in, out); }
Work SelfCommunicator::all_gather_v(Tensor in, Tensor out, std::span<const int64_t>) { return copy_over(in, out); }
Work SelfCommunicator::reduce_scatter(Tensor in, Tensor out, ReduceOp) { return copy_over(in, out); }
Work SelfCommunicator::reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t>, ReduceOp) {
  return copy_over(in, out);
}
Work SelfCommunicator::broadcast(Tensor, int) { return Work(); }
Work SelfCommunicator::all_to_all(Tensor in, Tensor out) { return copy_over(in, out); }

Work SelfCommunicator::send(Tensor, int, int) {
  ensure(false, "send in a group of one rank");
  return Work();
}

Work SelfCommunicator::recv(Tensor, int, int) {
  ensure(false, "recv in a group of one rank");
  return Work();
}

Tensor SelfCommunicator::allocate_symmetric(DType dtype, int64_t elements) {
  symmetric_.push_back(arena_.allocate(dtype, elements, MemoryCategory::Communication));
  return symmetric_.back().view(dtype, {elements});
}

}  // namespace triax::comm

#include "comm/phantom.h"

#include <cstring>

namespace triax::comm {

Work PhantomCommunicator::recv(Tensor t, int, int) {
  if (t.bytes() > 0) std::memset(t.data(), 0, static_cast<size_t>(t.bytes()));
  return Work();
}

Tensor PhantomCommunicator::allocate_symmetric(DType dtype, int64_t elements) {
  symmetric_.push_back(arena_.allocate(dtype, elements, MemoryCategory::Communication));
  return symmetric_.back().view(dtype, {elements});
}

}  // namespace triax::comm

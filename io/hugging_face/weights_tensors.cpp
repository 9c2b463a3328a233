#include "io/hugging_face/weights_tensors.h"

namespace triax::io {

void WeightsSource::read(const std::string& name, const std::vector<int64_t>& shape, Tensor out) const {
  parallel::Parameter p;
  p.name = name;
  p.spec.global_shape = p.local_shape = shape;
  p.spec.count = shape[0];
  p.numel = out.numel();
  reader_->read(p, out);
}

void WeightsSink::write(const std::string& name, const std::vector<int64_t>& shape, Tensor values) {
  writer_->write(name, {0, 0, shape[0], 0, shape[0]}, values);
}

}  // namespace triax::io

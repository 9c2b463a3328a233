// A weights file as source and as sink of whole tensors.
#pragma once

#include "io/hugging_face/transfer.h"
#include "io/weights/weights_file.h"

namespace triax::io {

class WeightsSource final : public TensorSource {
 public:
  explicit WeightsSource(const WeightsReader& reader) : reader_(&reader) {}
  DType dtype() const override { return reader_->header().dtype; }
  void read(const std::string& name, const std::vector<int64_t>& shape, Tensor out) const override;

 private:
  const WeightsReader* reader_;
};

class WeightsSink final : public TensorSink {
 public:
  explicit WeightsSink(WeightsWriter& writer) : writer_(&writer) {}
  void create(const std::string& name, const std::vector<int64_t>& shape) override { writer_->create(name, shape); }
  void write(const std::string& name, const std::vector<int64_t>& shape, Tensor values) override;

 private:
  WeightsWriter* writer_;
};

}  // namespace triax::io

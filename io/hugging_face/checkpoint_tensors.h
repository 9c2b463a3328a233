// A checkpoint as source and as sink of whole tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/directory.h"
#include "io/checkpoint/reader.h"
#include "io/hugging_face/transfer.h"

namespace triax::io {

/// Tensors of one kind ("weight", or "master" for the fp32 copy).
class CheckpointSource final : public TensorSource {
 public:
  /// Throws RunTimeError when the checkpoint has no such tensors, several types of them, or one that the model of its
  /// header does not have.
  CheckpointSource(CheckpointReader& reader, std::string kind);
  DType dtype() const override { return dtype_; }
  void read(const std::string& name, const std::vector<int64_t>& shape, Tensor out) const override;

 private:
  CheckpointReader* reader_;
  std::string kind_;
  DType dtype_ = DType::Float32;
};

/// A new step (iteration 0, one shard, weights only) in `directory`, visible after commit(). Throws ConfigError when
/// that step is there already.
class CheckpointSink final : public TensorSink {
 public:
  /// bytes: of all values that will come.
  CheckpointSink(const std::string& directory, const CheckpointHeader& header, int64_t bytes);
  /// Until commit().
  void set_header(const CheckpointHeader& header) { header_ = header; }
  void create(const std::string&, const std::vector<int64_t>&) override {}
  void write(const std::string& name, const std::vector<int64_t>& shape, Tensor values) override;
  void commit();

 private:
  std::string directory_;
  CheckpointHeader header_;
  DirectoryLock lock_;
  std::unique_ptr<ShardWriter> shard_;
};

}  // namespace triax::io

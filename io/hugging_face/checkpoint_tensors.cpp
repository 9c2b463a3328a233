#include "io/hugging_face/checkpoint_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <set>

#include "base/error.h"
#include "io/checkpoint/index.h"

namespace triax::io {
namespace {

/// Makes the directory, so that it can be locked.
const std::string& made(const std::string& directory, int64_t iteration) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw RunTimeError(fmt::format("{}: cannot be made: {}", directory, error.message()));
  if (std::filesystem::exists(step_path(directory, iteration))) {
    throw ConfigError(fmt::format("{}: exists already; name another directory", step_path(directory, iteration)));
  }
  return directory;
}

}  // namespace

CheckpointSource::CheckpointSource(CheckpointReader& reader, std::string kind)
    : reader_(&reader), kind_(std::move(kind)) {
  std::set<std::string> wanted;
  const model::ModelConfig& model = reader.header().weights.model;
  for (const HubTensor& tensor : hub_tensors(model, hub_family(model))) {
    for (const TensorPart& part : tensor.parts) wanted.insert(part.name);
  }
  std::set<DType> types;
  for (const TensorInfo& info : reader.tensors()) {
    if (info.kind != kind_) continue;
    if (!wanted.contains(info.name)) {
      throw RunTimeError(
          fmt::format("checkpoint {}: tensor {} has no place in a model of its header", reader.path(), info.name));
    }
    types.insert(info.dtype);
  }
  if (types.empty()) {
    throw ConfigError(fmt::format("checkpoint {}: has no tensors of kind {}", reader.path(), kind_));
  }
  if (types.size() > 1) {
    throw RunTimeError(fmt::format("checkpoint {}: its tensors have several types", reader.path()));
  }
  dtype_ = *types.begin();
}

void CheckpointSource::read(const std::string& name, const std::vector<int64_t>& shape, Tensor out) const {
  const TensorInfo* info = reader_->find(kind_, name);
  if (info == nullptr) {
    throw RunTimeError(fmt::format("checkpoint {}: tensor {} of kind {} is missing", reader_->path(), name, kind_));
  }
  if (info->shape != shape) {
    throw RunTimeError(fmt::format("checkpoint {}: tensor {} has shape [{}], the model wants [{}]", reader_->path(),
                                   name, fmt::join(info->shape, ", "), fmt::join(shape, ", ")));
  }
  reader_->read_whole(*info, out);
}

CheckpointSink::CheckpointSink(const std::string& directory, const CheckpointHeader& header, int64_t bytes)
    : directory_(directory), header_(header), lock_(made(directory, header.weights.iteration)) {
  begin_step(directory_, header_.weights.iteration);
  shard_ = std::make_unique<ShardWriter>(unfinished_path(directory_, header_.weights.iteration) + "/" + shard_name(0),
                                         bytes);
}

void CheckpointSink::write(const std::string& name, const std::vector<int64_t>& shape, Tensor values) {
  Piece piece{kWeight, name, {}, 0, values.numel(), values};
  piece.spec.global_shape = shape;
  piece.spec.count = shape[0];
  shard_->write(piece);
}

void CheckpointSink::commit() {
  const std::vector<ShardSummary> summaries{shard_->commit()};
  shard_.reset();
  write_index(unfinished_path(directory_, header_.weights.iteration), header_, summaries);
  publish_step(directory_, header_.weights.iteration);
}

}  // namespace triax::io

// Weights to and from the directory of a Hugging Face model, tensor by tensor; no ranks. Memory: two copies of the
// largest tensor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "io/hugging_face/names.h"
#include "io/safetensors/directory.h"

namespace triax::io {

/// Whole tensors of ours, by name: a weights file, a checkpoint.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Element type of the stored weights.
  virtual DType dtype() const = 0;
  /// Fills out [product of shape] of dtype(). Throws RunTimeError naming a missing tensor or another shape.
  virtual void read(const std::string& name, const std::vector<int64_t>& shape, Tensor out) const = 0;
};

class TensorSink {
 public:
  virtual ~TensorSink() = default;
  virtual void create(const std::string& name, const std::vector<int64_t>& shape) = 0;
  /// values [product of shape], of the type that the import was asked for.
  virtual void write(const std::string& name, const std::vector<int64_t>& shape, Tensor values) = 0;
};

struct HubExport {
  DType dtype = DType::Float32;
  int64_t most_file_bytes = 5'000'000'000;
  HubTokens tokens;
};
/// Throws ConfigError when `directory` holds *.safetensors or their index.
void refuse_other_weights(const std::string& directory);

/// Writes config.json and the weights. Throws ConfigError where the model is of neither family or the directory
/// already holds weights.
void export_hub(const TensorSource& source, const model::ModelConfig& config, const std::string& directory,
                const HubExport& options);

/// A model's directory: config.json and safetensors, checked against each other.
class HubModel {
 public:
  /// Throws ConfigError for a model that is not computed here, RunTimeError for missing, malformed or left-over
  /// tensors, each by name. Buffers of old versions (causal masks, rotary frequencies) are left-overs that are skipped;
  /// a stored head of a tied model must equal the embedding.
  explicit HubModel(const std::string& directory);
  const HubConfig& config() const { return config_; }
  /// The type of all weights; nothing when they have several.
  std::optional<DType> dtype() const { return dtype_; }
  /// Every tensor, converted to `dtype` (rounded to nearest even where that is narrower).
  void copy_to(TensorSink& sink, DType dtype) const;

 private:
  SafetensorsDirectory::Item find(const std::string& name) const;
  void check_left_overs(const std::vector<std::string>& used) const;
  std::string directory_;
  HubConfig config_;
  SafetensorsDirectory tensors_;
  std::vector<HubTensor> list_;
  std::optional<DType> dtype_;
};

}  // namespace triax::io

// Tables of rotary position embedding (Su et al. 2021, arXiv 2104.09864).
#pragma once

#include "model/config.h"
#include "parallel/layer_context.h"

namespace triax::model {

/// cos and sin of position * base^(-2i / rotary_dim): [positions, rotary_dim / 2], computed in double.
class RotaryTable {
 public:
  /// Empty when the model has no rotary embedding.
  RotaryTable(const ModelConfig& model, const parallel::LayerContext& context);
  explicit operator bool() const { return static_cast<bool>(cos_); }
  Tensor cos() const { return cos_.view(dtype_, {positions_, half_}); }
  Tensor sin() const { return sin_.view(dtype_, {positions_, half_}); }

 private:
  DType dtype_ = DType::Float32;
  int64_t positions_ = 0;
  int64_t half_ = 0;
  Buffer cos_, sin_;
};

}  // namespace triax::model

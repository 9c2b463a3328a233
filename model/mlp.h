// The feed-forward block: column-parallel expansion, GELU or SwiGLU, row-parallel contraction (arXiv 1909.08053,
// figure 3a).
#pragma once

#include "model/parameters.h"
#include "parallel/linear.h"

namespace triax::model {

class Mlp {
 public:
  struct State {
    Buffer input;      ///< normed [T', h]
    Buffer expanded;   ///< [T, f/t], or gate and up side by side [T, 2f/t]
    Buffer activated;  ///< [T, f/t]
    Buffer dexpanded;  ///< backward_input to backward_weight
    Buffer doutput;    ///< [T, h]
    void clear() { *this = {}; }
  };

  Mlp(const ModelConfig& model, const parallel::LayerContext& context, parallel::ParameterStore& store, int64_t layer);

  /// input [T', h] -> [T', h], without the contraction's bias.
  Buffer forward(State& state, Buffer input) const;
  /// doutput [T', h] -> gradient of the input [T', h].
  Buffer backward_input(State& state, Buffer doutput, parallel::WeightGradient when) const;
  void backward_weight(State& state) const;
  Tensor contraction_bias() const;
  Tensor contraction_dbias() const;

 private:
  parallel::LinearWeights expand_weights() const;
  parallel::LinearWeights contract_weights() const;
  int64_t width() const;           ///< f / t
  int64_t expanded_width() const;  ///< f / t or 2 f / t

  const ModelConfig* model_;
  const parallel::LayerContext* c_;
  parallel::ParameterStore* store_;
  parallel::ColumnParallelLinear expand_;
  parallel::RowParallelLinear contract_;
  size_t expand_count_ = 1;
  size_t expand_weight_, expand_bias_ = 0, contract_weight_, contract_bias_ = 0;
};

}  // namespace triax::model

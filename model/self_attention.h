// Causal self-attention with grouped KV heads: column-parallel q, k, v; flash attention on the rank's own heads;
// row-parallel output projection (arXiv 1909.08053, figure 3b).
#pragma once

#include "model/parameters.h"
#include "model/rotary.h"
#include "parallel/layout.h"
#include "parallel/linear.h"

namespace triax::model {

/// Dropout sites: layer * 4 + place. The embedding's is place 3 of layer 0.
enum class DropoutPlace : uint32_t { Attention = 0, Projection = 1, Mlp = 2, Embedding = 3 };
kernels::Dropout dropout_at(const parallel::LayerContext& context, double p, int64_t layer, DropoutPlace place,
                            parallel::Mode mode);

class SelfAttention {
 public:
  struct State {
    Buffer input;    ///< normed [T', h]
    Buffer qkv;      ///< [T, (a + 2k) d / t], rotated
    Buffer output;   ///< [T, a d / t]; dropped after the forward under selective recomputation
    Buffer lse;      ///< [a / t, T]; dropped likewise
    Buffer dqkv;     ///< backward_input to backward_weight
    Buffer doutput;  ///< [T, h], gradient of the projection's output
    void clear() { *this = {}; }
  };

  SelfAttention(const ModelConfig& model, const parallel::LayerContext& context, parallel::ParameterStore& store,
                const RotaryTable& rotary, int64_t layer, const std::string& name,
                parallel::RecomputeGranularity recompute);

  /// input [T', h] -> [T', h], without the projection's bias. tp: gather/sum at each linear layer.
  Buffer forward(State& state, const parallel::MicroBatch& batch, Buffer input, parallel::Mode mode) const;
  /// dprojection [T', h] -> gradient of the input [T', h].
  Buffer backward_input(State& state, const parallel::MicroBatch& batch, Buffer dprojection,
                        parallel::WeightGradient when) const;
  void backward_weight(State& state) const;
  /// Bias of the projection, replicated; empty without biases.
  Tensor projection_bias() const;
  Tensor projection_dbias() const;

 private:
  struct Views {
    Tensor q, k, v;
  };
  Views views(const Buffer& buffer) const;
  kernels::Attention attention_args(const parallel::MicroBatch& batch, parallel::Mode mode) const;
  void attend(State& state, const parallel::MicroBatch& batch, parallel::Mode mode) const;
  parallel::LinearWeights qkv_weights() const;
  parallel::LinearWeights projection_weights() const;
  void rotate(const Buffer& buffer, const parallel::MicroBatch& batch,
              kernels::Device::RotaryDirection direction) const;
  int64_t qkv_cols() const;

  const ModelConfig* model_;
  const parallel::LayerContext* c_;
  parallel::ParameterStore* store_;
  const RotaryTable* rotary_;
  int64_t layer_;
  parallel::RecomputeGranularity recompute_;
  HeadShare share_;
  parallel::ColumnParallelLinear qkv_;
  parallel::RowParallelLinear projection_;
  size_t qkv_weight_, qkv_bias_ = 0, projection_weight_, projection_bias_ = 0;
};

}  // namespace triax::model

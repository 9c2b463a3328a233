// One pre-norm transformer layer: x + attention(norm(x)), then + mlp(norm(.)), dropout on both branches.
#pragma once

#include "model/mlp.h"
#include "model/norm.h"
#include "model/self_attention.h"

namespace triax::model {

class TransformerLayer {
 public:
  struct State {
    Buffer input;  ///< x [T', h]
    Norm::State norm1;
    SelfAttention::State attention;
    Buffer middle;  ///< x + attention branch [T', h]
    Norm::State norm2;
    Mlp::State mlp;
    void clear();
  };

  TransformerLayer(const ModelConfig& model, const parallel::LayerContext& context, parallel::ParameterStore& store,
                   const RotaryTable& rotary, int64_t layer, parallel::RecomputeGranularity recompute);

  /// x [T', h] -> [T', h]; fills `state`.
  Buffer forward(State& state, const parallel::MicroBatch& batch, Buffer x, parallel::Mode mode) const;
  /// dy [T', h] -> dx [T', h] (in dy's memory). With WeightGradient::Now the state is empty afterwards.
  Buffer backward_input(State& state, const parallel::MicroBatch& batch, Buffer dy,
                        parallel::WeightGradient when) const;
  void backward_weight(State& state) const;

 private:
  // y = residual + dropout(branch + bias), in branch's memory.
  Buffer add_branch(Buffer branch, Tensor bias, Tensor residual, DropoutPlace place, const parallel::MicroBatch& batch,
                    parallel::Mode mode) const;
  // Gradient of a branch's output; bias gradient accumulates.
  Buffer branch_gradient(Tensor dy, Tensor dbias, DropoutPlace place, const parallel::MicroBatch& batch) const;
  Tensor hidden(const Buffer& buffer) const;

  const ModelConfig* model_;
  const parallel::LayerContext* c_;
  int64_t layer_;
  Norm norm1_;
  SelfAttention attention_;
  Norm norm2_;
  Mlp mlp_;
};

/// Token index of this rank's rows [T'] outside of tensor-parallel regions.
kernels::TokenIndex local_index(const parallel::LayerContext& context, const parallel::MicroBatch& batch);

}  // namespace triax::model

// LayerNorm or RMSNorm with its parameters, replicated over tp.
#pragma once

#include <string>

#include "model/parameters.h"

namespace triax::model {

class Norm {
 public:
  /// Row statistics of one micro-batch: mean (LayerNorm only) and reciprocal standard deviation.
  struct State {
    Buffer mean, rstd;
    void clear() { *this = {}; }
  };

  Norm(const ModelConfig& model, const parallel::LayerContext& context, parallel::ParameterStore& store,
       const std::string& name);

  /// y = norm(x) * gamma (+ beta); x, y: [T', h].
  Buffer forward(State& state, Tensor x) const;
  /// dx += gradient of x; gamma's and beta's gradients accumulate.
  void backward(const State& state, Tensor dy, Tensor x, Tensor dx, kernels::Accumulate accumulate_dx) const;

 private:
  const parallel::LayerContext* c_;
  parallel::ParameterStore* store_;
  NormType type_;
  double epsilon_;
  size_t gamma_;
  size_t beta_ = 0;
};

}  // namespace triax::model

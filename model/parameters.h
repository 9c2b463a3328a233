// Declares the parameters of a transformer: name, sharding, initial value. One place decides what is cut over tp.
#pragma once

#include <string>
#include <utility>

#include "model/config.h"
#include "parallel/layer_context.h"
#include "parallel/parameter.h"

namespace triax::model {

/// Heads of one tp rank. With more tp ranks than KV heads, t / k neighbouring ranks hold the same KV head.
struct HeadShare {
  int64_t query_begin = 0, query_count = 0;
  int64_t kv_begin = 0, kv_count = 0;
  int kv_replicas = 1;
  int kv_replica = 0;
};
HeadShare head_share(const ModelConfig& model, int tensor_rank, int tensor_size);

/// Makes Parameters for one model on one tp rank. Naming follows Llama's tensor names
/// ("model.layers.0.mlp.up_proj.weight").
class ParameterFactory {
 public:
  ParameterFactory(const ModelConfig& model, const parallel::LayerContext& context);

  /// [out, in], rows [begin, begin + count) of out held here.
  parallel::Parameter column_weight(std::string name, int64_t out, int64_t in, int64_t begin, int64_t count) const;
  /// [out], elements [begin, begin + count) held here; no weight decay.
  parallel::Parameter column_bias(std::string name, int64_t out, int64_t begin, int64_t count) const;
  /// [out, in], columns cut evenly over tp; init std / sqrt(2 L) (GPT-2's scaling of residual projections).
  parallel::Parameter row_weight(std::string name, int64_t out, int64_t in) const;
  /// [n], whole on every tp rank, used on the rank's own tokens: its gradient is a partial sum under sequence
  /// parallelism.
  parallel::Parameter replicated_vector(std::string name, int64_t n, parallel::InitKind init) const;
  /// [rows, cols], whole on every tp rank.
  parallel::Parameter replicated_matrix(std::string name, int64_t rows, int64_t cols) const;
  /// [V, h] cut along the padded vocabulary.
  parallel::Parameter vocab_matrix(std::string name) const;

 private:
  parallel::Parameter replicated(std::string name, std::vector<int64_t> shape) const;
  const ModelConfig* model_;
  const parallel::LayerContext* c_;
};

}  // namespace triax::model

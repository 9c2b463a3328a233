#include "model/parameters.h"

#include <cmath>

#include "parallel/vocab_embedding.h"

namespace triax::model {

using parallel::GradientSum;
using parallel::InitKind;
using parallel::Parameter;

HeadShare head_share(const ModelConfig& model, int rank, int t) {
  const int64_t a = model.num_attention_heads;
  const int64_t k = model.num_query_groups;
  ensure(a % t == 0 && (k % t == 0 || t % k == 0), "head_share: heads do not divide over tp");
  HeadShare share;
  share.query_count = a / t;
  share.query_begin = share.query_count * rank;
  if (k >= t) {
    share.kv_count = k / t;
    share.kv_begin = share.kv_count * rank;
  } else {
    share.kv_replicas = static_cast<int>(t / k);
    share.kv_replica = rank % share.kv_replicas;
    share.kv_count = 1;
    share.kv_begin = rank / share.kv_replicas;
  }
  return share;
}

ParameterFactory::ParameterFactory(const ModelConfig& model, const parallel::LayerContext& context)
    : model_(&model), c_(&context) {}

Parameter ParameterFactory::column_weight(std::string name, int64_t out, int64_t in, int64_t begin,
                                          int64_t count) const {
  Parameter p;
  p.name = std::move(name);
  p.spec.global_shape = {out, in};
  p.spec.cut_dim = 0;
  p.spec.begin = begin;
  p.spec.count = count;
  p.local_shape = {count, in};
  p.init_std = model_->init_method_std;
  return p;
}

Parameter ParameterFactory::column_bias(std::string name, int64_t out, int64_t begin, int64_t count) const {
  Parameter p;
  p.name = std::move(name);
  p.spec.global_shape = {out};
  p.spec.cut_dim = 0;
  p.spec.begin = begin;
  p.spec.count = count;
  p.local_shape = {count};
  p.init = InitKind::Zeros;
  p.weight_decay = false;
  return p;
}

Parameter ParameterFactory::row_weight(std::string name, int64_t out, int64_t in) const {
  Parameter p;
  p.name = std::move(name);
  p.spec.global_shape = {out, in};
  p.spec.cut_dim = 1;
  p.spec.count = in / c_->t();
  p.spec.begin = p.spec.count * c_->tensor->rank();
  p.local_shape = {out, p.spec.count};
  p.init_std = model_->init_method_std / std::sqrt(2.0 * static_cast<double>(model_->num_layers));
  return p;
}

Parameter ParameterFactory::replicated(std::string name, std::vector<int64_t> shape) const {
  Parameter p;
  p.name = std::move(name);
  p.spec.count = shape[0];
  p.spec.replicas = c_->t();
  p.spec.replica = c_->tensor->rank();
  p.spec.gradient_sum = c_->sp() ? GradientSum::Tensor : GradientSum::None;
  p.spec.global_shape = shape;
  p.local_shape = std::move(shape);
  return p;
}

Parameter ParameterFactory::replicated_vector(std::string name, int64_t n, InitKind init) const {
  Parameter p = replicated(std::move(name), {n});
  p.init = init;
  p.phase = parallel::GradientPhase::Input;
  p.weight_decay = false;
  return p;
}

Parameter ParameterFactory::replicated_matrix(std::string name, int64_t rows, int64_t cols) const {
  Parameter p = replicated(std::move(name), {rows, cols});
  p.init_std = model_->init_method_std;
  return p;
}

Parameter ParameterFactory::vocab_matrix(std::string name) const {
  const parallel::VocabRange range =
      parallel::vocab_range(model_->vocab_size, model_->padded_vocab_size(c_->t()), c_->tensor->rank(), c_->t());
  Parameter p = column_weight(std::move(name), model_->vocab_size, model_->hidden_size, range.first, range.valid);
  p.local_shape[0] = range.rows;
  return p;
}

}  // namespace triax::model

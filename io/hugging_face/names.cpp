#include "io/hugging_face/names.h"

#include <fmt/format.h>

#include "base/error.h"

namespace triax::io {
namespace {

using model::ModelConfig;

/// Collects tensors; `ours` are names of weights, to which ".weight" and, where there is one, ".bias" are added.
class List {
 public:
  void weight(const std::string& theirs, std::vector<TensorPart> parts, Storage storage = Storage::AsOurs) {
    for (TensorPart& part : parts) part.name += ".weight";
    tensors.push_back({theirs + ".weight", std::move(parts), storage});
  }
  /// One bias per row of the weights' parts.
  void bias(const std::string& theirs, std::vector<TensorPart> parts) {
    for (TensorPart& part : parts) {
      part.name += ".bias";
      part.shape.resize(1);
    }
    tensors.push_back({theirs + ".bias", std::move(parts), Storage::AsOurs});
  }
  void norm(const std::string& theirs, const std::string& ours, const ModelConfig& m) {
    weight(theirs, {{ours, {m.hidden_size}}});
    if (m.norm == model::NormType::LayerNorm) bias(theirs, {{ours, {m.hidden_size}}});
  }
  std::vector<HubTensor> tensors;
};

std::vector<HubTensor> gpt2_tensors(const ModelConfig& m) {
  const int64_t h = m.hidden_size, f = m.ffn_hidden_size;
  List list;
  list.weight("transformer.wte", {{"model.embed_tokens", {m.vocab_size, h}}});
  list.weight("transformer.wpe", {{"model.embed_positions", {m.max_position_embeddings, h}}});
  for (int64_t i = 0; i < m.num_layers; ++i) {
    const std::string theirs = fmt::format("transformer.h.{}.", i), ours = fmt::format("model.layers.{}.", i);
    const auto conv1d = [&](const std::string& name, const std::vector<TensorPart>& parts) {
      list.weight(theirs + name, parts, Storage::Transposed);
      list.bias(theirs + name, parts);
    };
    list.norm(theirs + "ln_1", ours + "input_layernorm", m);
    conv1d("attn.c_attn", {{ours + "self_attn.q_proj", {h, h}},
                           {ours + "self_attn.k_proj", {h, h}},
                           {ours + "self_attn.v_proj", {h, h}}});
    conv1d("attn.c_proj", {{ours + "self_attn.o_proj", {h, h}}});
    list.norm(theirs + "ln_2", ours + "post_attention_layernorm", m);
    conv1d("mlp.c_fc", {{ours + "mlp.fc1", {f, h}}});
    conv1d("mlp.c_proj", {{ours + "mlp.fc2", {h, f}}});
  }
  list.norm("transformer.ln_f", "model.norm", m);
  if (!m.tie_embeddings) list.weight("lm_head", {{"lm_head", {m.vocab_size, h}}});
  return std::move(list.tensors);
}

std::vector<HubTensor> llama_tensors(const ModelConfig& m) {
  const int64_t h = m.hidden_size, f = m.ffn_hidden_size, q = m.query_size(), kv = m.kv_size();
  List list;
  list.weight("model.embed_tokens", {{"model.embed_tokens", {m.vocab_size, h}}});
  for (int64_t i = 0; i < m.num_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
      list.weight(layer + name, {{layer + name, {out, in}}});
      if (m.add_bias_linear) list.bias(layer + name, {{layer + name, {out}}});
    };
    list.norm(layer + "input_layernorm", layer + "input_layernorm", m);
    linear("self_attn.q_proj", q, h);
    linear("self_attn.k_proj", kv, h);
    linear("self_attn.v_proj", kv, h);
    linear("self_attn.o_proj", h, q);
    list.norm(layer + "post_attention_layernorm", layer + "post_attention_layernorm", m);
    linear("mlp.gate_proj", f, h);
    linear("mlp.up_proj", f, h);
    linear("mlp.down_proj", h, f);
  }
  list.norm("model.norm", "model.norm", m);
  if (!m.tie_embeddings) list.weight("lm_head", {{"lm_head", {m.vocab_size, h}}});
  return std::move(list.tensors);
}

}  // namespace

std::vector<int64_t> HubTensor::our_shape() const {
  std::vector<int64_t> shape = parts[0].shape;
  for (size_t i = 1; i < parts.size(); ++i) shape[0] += parts[i].shape[0];
  return shape;
}

std::vector<int64_t> HubTensor::stored_shape() const {
  const std::vector<int64_t> shape = our_shape();
  return storage == Storage::Transposed ? std::vector<int64_t>{shape[1], shape[0]} : shape;
}

std::vector<HubTensor> hub_tensors(const ModelConfig& config, HubFamily family) {
  return family == HubFamily::Gpt2 ? gpt2_tensors(config) : llama_tensors(config);
}

}  // namespace triax::io

// Shape of the model.
#include "io/options/entries.h"

namespace triax::io {
namespace {

using model::ActivationType;
using model::NormType;
using model::PositionType;
constexpr OptionGroup kModelGroup = OptionGroup::Model;

OptionEntry disable_bias_linear() {
  OptionEntry entry = switch_option(
      "disable-bias-linear", kModelGroup, [](auto& o) -> auto& { return o.model.add_bias_linear; },
      "no biases in attention and MLP projections");
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    o.model.add_bias_linear = values[0] == "false";  // q, k and v follow unless --add-qkv-bias is given (derive.cpp)
    return {};
  };
  entry.get = [](const RunOptions& o) -> std::vector<std::string> {
    return {o.model.add_bias_linear ? "false" : "true"};
  };
  return entry;
}

OptionEntry swiglu() {
  OptionEntry entry = switch_option(
      "swiglu", kModelGroup, [](auto& o) -> auto& { return o.model.tie_embeddings; },
      "SwiGLU in the MLP instead of GELU");
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    o.model.activation = values[0] == "true" ? ActivationType::SwiGlu : ActivationType::Gelu;
    return {};
  };
  entry.get = [](const RunOptions& o) -> std::vector<std::string> {
    return {o.model.activation == ActivationType::SwiGlu ? "true" : "false"};
  };
  return entry;
}

OptionEntry untie() {
  OptionEntry entry = swiglu();
  entry.name = "untie-embeddings-and-output-weights";
  entry.help = "the output head has its own weight";
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    o.model.tie_embeddings = values[0] == "false";
    return {};
  };
  entry.get = [](const RunOptions& o) -> std::vector<std::string> {
    return {o.model.tie_embeddings ? "false" : "true"};
  };
  return entry;
}

OptionEntry rotary_switch() {
  OptionEntry entry = derived_option("use-rotary-position-embeddings", ValueKind::Switch, kModelGroup, "",
                                     "the same as --position-embedding-type rope");
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    if (values[0] == "true") o.model.position = PositionType::Rope;
    return {};
  };
  return entry;
}

// No field of its own: KV heads fewer than heads are grouped (derive.cpp).
OptionEntry group_query_attention() {
  OptionEntry entry = derived_option("group-query-attention", ValueKind::Switch, kModelGroup, "",
                                     "fewer KV heads than heads; see --num-query-groups");
  entry.get = [](const RunOptions& o) -> std::vector<std::string> {
    return {o.model.num_query_groups < o.model.num_attention_heads ? "true" : "false"};
  };
  return entry;
}

// The vocabulary is named by the data's description; this option says it for data without one.
OptionEntry vocab_size() {
  OptionEntry entry = integer_option(
      "vocab-size", kModelGroup, {1, kMostWidth}, [](auto& o) -> auto& { return o.data.vocab_size; },
      "number of token ids; default: the data's own description");
  const OptionSetter set = entry.set;
  entry.set = [set](RunOptions& o, const std::vector<std::string>& values) {
    const std::string fault = set(o, values);
    if (fault.empty()) o.model.vocab_size = o.data.vocab_size;
    return fault;
  };
  return entry;
}

// For resolved.cfg: a preset's vocabulary does not bind the tokenizer as --vocab-size does.
OptionEntry model_vocab_size() {
  return integer_option(
      "model-vocab-size", kModelGroup, {1, kMostWidth}, [](auto& o) -> auto& { return o.model.vocab_size; },
      "rows of the embedding before padding, when it may differ from the tokenizer's");
}

std::vector<OptionEntry> shape_entries() {
  return {
      derived_option("model", ValueKind::Value, kModelGroup, "NAME|FILE",
                     "named model (--list-models) or a .cfg file of model options; others override it"),
      derived_option("list-models", ValueKind::Switch, kModelGroup, "", "list the named models and exit"),
      text_option(
          "model-name", kModelGroup, "NAME", [](auto& o) -> auto& { return o.model.name; },
          "name in the run directory; default: that of --model"),
      integer_option(
          "num-layers", kModelGroup, {1, kMostLayers}, [](auto& o) -> auto& { return o.model.num_layers; },
          "transformer layers L"),
      integer_option(
          "hidden-size", kModelGroup, {1, kMostWidth}, [](auto& o) -> auto& { return o.model.hidden_size; },
          "hidden size h"),
      integer_option(
          "ffn-hidden-size", kModelGroup, {1, kMostWidth}, [](auto& o) -> auto& { return o.model.ffn_hidden_size; },
          "MLP width f; default 4h, with --swiglu int(4h*2/3/64)*64"),
      integer_option(
          "num-attention-heads", kModelGroup, {1, kMostWidth},
          [](auto& o) -> auto& { return o.model.num_attention_heads; }, "attention heads a"),
      group_query_attention(),
      integer_option(
          "num-query-groups", kModelGroup, {1, kMostWidth}, [](auto& o) -> auto& { return o.model.num_query_groups; },
          "KV heads k, with --group-query-attention (then default 1)"),
      integer_option(
          "kv-channels", kModelGroup, {1, kMostWidth}, [](auto& o) -> auto& { return o.model.kv_channels; },
          "head dimension d; default h/a"),
      other_names(integer_option(
                      "seq-length", kModelGroup, {1, kMostWidth}, [](auto& o) -> auto& { return o.model.seq_length; },
                      "sequence length s"),
                  "", "training.seq_len"),
      integer_option(
          "max-position-embeddings", kModelGroup, {1, kMostWidth},
          [](auto& o) -> auto& { return o.model.max_position_embeddings; },
          "rows of the learned positions; default the sequence length"),
      vocab_size(),
      model_vocab_size(),
      integer_option(
          "make-vocab-size-divisible-by", kModelGroup, {1, kMostWidth},
          [](auto& o) -> auto& { return o.model.make_vocab_size_divisible_by; },
          "the embedding is padded to a multiple of this times the tensor-parallel size"),
  };
}

std::vector<OptionEntry> kind_entries() {
  return {
      choice_option<PositionType>(
          "position-embedding-type", kModelGroup,
          {{"learned_absolute", PositionType::Learned}, {"rope", PositionType::Rope}, {"none", PositionType::None}},
          [](auto& o) -> auto& { return o.model.position; }, "positions"),
      rotary_switch(),
      real_option(
          "rotary-base", kModelGroup, kPositive, [](auto& o) -> auto& { return o.model.rotary_base; },
          "base of the rotary frequencies"),
      real_option(
          "rotary-percent", kModelGroup, {0, 1, true, false}, [](auto& o) -> auto& { return o.model.rotary_percent; },
          "part of each head that rotates"),
      choice_option<NormType>(
          "normalization", kModelGroup, {{"LayerNorm", NormType::LayerNorm}, {"RMSNorm", NormType::RMSNorm}},
          [](auto& o) -> auto& { return o.model.norm; }, "normalization"),
      aliased(real_option(
                  "norm-epsilon", kModelGroup, kPositive, [](auto& o) -> auto& { return o.model.norm_epsilon; },
                  "added to the variance"),
              {"layernorm-epsilon"}),
      swiglu(),
      derived_option("bias-gelu-fusion", ValueKind::Switch, kModelGroup, "",
                     "GELU in its tanh form (always; --no-bias-gelu-fusion would be the erf form and is refused)"),
      disable_bias_linear(),
      switch_option(
          "add-qkv-bias", kModelGroup, [](auto& o) -> auto& { return o.model.add_qkv_bias; },
          "biases of query, key and value, with --disable-bias-linear"),
      untie(),
      real_option(
          "hidden-dropout", kModelGroup, kBelowOne, [](auto& o) -> auto& { return o.model.hidden_dropout; },
          "dropout after attention and MLP"),
      real_option(
          "attention-dropout", kModelGroup, kBelowOne, [](auto& o) -> auto& { return o.model.attention_dropout; },
          "dropout of the attention weights"),
      real_option(
          "init-method-std", kModelGroup, kPositive, [](auto& o) -> auto& { return o.model.init_method_std; },
          "standard deviation of the initial weights"),
  };
}

}  // namespace

std::vector<OptionEntry> model_entries() {
  std::vector<OptionEntry> all = shape_entries();
  for (OptionEntry& entry : kind_entries()) all.push_back(std::move(entry));
  return all;
}

}  // namespace triax::io

#include "io/hugging_face/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace triax::io {
namespace {

using model::ActivationType;
using model::ModelConfig;
using model::NormType;
using model::PositionType;
using nlohmann::json;

/// Keys that say nothing about what a forward pass of given weights computes.
const std::set<std::string>& inert_keys() {
  static const std::set<std::string> keys = {
      "_name_or_path", "_attn_implementation", "architectures", "auto_map", "bos_token_id", "chunk_size_feed_forward",
      "dtype", "eos_token_id", "finetuning_task", "gradient_checkpointing", "id2label", "label2id", "n_ctx",
      "output_attentions", "output_hidden_states", "output_past", "pad_token_id", "pretraining_tp", "problem_type",
      "reorder_and_upcast_attn", "return_dict", "return_dict_in_generate", "sep_token_id", "summary_activation",
      "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "task_specific_params",
      "tokenizer_class", "torch_dtype", "torchscript", "transformers_version", "unsloth_version", "use_cache",
      // Defaults of generation that older versions wrote here.
      "bad_words_ids", "begin_suppress_tokens", "decoder_start_token_id", "diversity_penalty", "do_sample",
      "early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id",
      "forced_eos_token_id", "is_decoder", "length_penalty", "max_length", "min_length", "no_repeat_ngram_size",
      "num_beam_groups", "num_beams", "num_return_sequences", "output_scores", "prefix", "remove_invalid_values",
      "repetition_penalty", "suppress_tokens", "temperature", "tf_legacy_loss", "top_k", "top_p", "typical_p",
      "use_bfloat16"};
  return keys;
}

/// Reads keys, remembers which, collects faults.
class KeyReader {
 public:
  KeyReader(const json& config, const std::string& path) : config_(config), path_(path) {}

  void fault(const std::string& key, const std::string& rule) {
    const bool there = config_.contains(key);
    faults_.push_back(fmt::format("{}: {} = {}: {}", path_, key, there ? config_[key].dump() : "(not given)", rule));
  }
  /// Null counts as not there.
  const json* find(const std::string& key) {
    read_.insert(key);
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }

  int64_t integer(const std::string& key, int64_t otherwise = -1) {
    const json* value = find(key);
    if (value == nullptr) {
      if (otherwise < 0) fault(key, "is required");
      return otherwise;
    }
    if (!value->is_number_integer() || value->get<int64_t>() < 1 || value->get<int64_t>() > (int64_t{1} << 31)) {
      fault(key, "must be a whole number from 1 to 2^31");
      return 1;
    }
    return value->get<int64_t>();
  }
  double real(const std::string& key, double otherwise) {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number() || !(value->get<double>() >= 0)) {
      fault(key, "must be a number of at least 0");
      return otherwise;
    }
    return value->get<double>();
  }
  bool flag(const std::string& key, bool otherwise) {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) {
      fault(key, "must be true or false");
      return otherwise;
    }
    return value->get<bool>();
  }
  std::string text(const std::string& key, const std::string& otherwise) {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) {
      fault(key, "must be a text");
      return otherwise;
    }
    return value->get<std::string>();
  }
  /// Only this value is computed here.
  void only(const std::string& key, bool wanted, const std::string& what) {
    if (flag(key, wanted) != wanted) fault(key, what);
  }
  void one_of(const std::string& key, const std::string& otherwise, const std::vector<std::string>& legal) {
    const std::string value = text(key, otherwise);
    if (std::find(legal.begin(), legal.end(), value) == legal.end()) {
      fault(key, fmt::format("is not computed here; only {}", fmt::join(legal, ", ")));
    }
  }
  /// Whatever it asks for is not computed here.
  void refuse(const std::string& key, const std::string& what) {
    const json* value = find(key);
    if (value != nullptr && !is_nothing(*value)) fault(key, what);
  }

  /// Every key that nobody read and that is not known to be harmless.
  void finish() {
    for (const auto& [key, value] : config_.items()) {
      if (read_.contains(key) || inert_keys().contains(key) || is_nothing(value)) continue;
      fault(key, "is not known and could change what the model computes; remove it from the file if it does not");
    }
    if (!faults_.empty()) throw ConfigError(fmt::format("{}", fmt::join(faults_, "\n  ")));
  }

 private:
  static bool is_nothing(const json& value) {
    return value.is_null() || value == false || value == 0 || (value.is_structured() && value.empty());
  }
  const json& config_;
  const std::string& path_;
  std::set<std::string> read_;
  std::vector<std::string> faults_;
};

void refuse_extensions(KeyReader& keys) {
  const char* const kExperts = "mixtures of experts are not computed here";
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts", "num_experts_per_tok"}) {
    keys.refuse(key, kExperts);
  }
  keys.refuse("quantization_config", "quantised weights are not read; give the model in bf16, fp16 or fp32");
  keys.refuse("attn_logit_softcapping", "capped scores are not computed here");
  keys.refuse("final_logit_softcapping", "capped logits are not computed here");
  keys.refuse("add_cross_attention", "only decoders without cross attention are computed here");
  keys.refuse("is_encoder_decoder", "only decoders are computed here");
  keys.refuse("pruned_heads", "pruned heads are not computed here");
}

/// rope_theta and rope_scaling, or rope_parameters of newer versions.
double rotary_base(KeyReader& keys) {
  double base = keys.real("rope_theta", 10000);
  if (const json* scaling = keys.find("rope_scaling"); scaling != nullptr && !scaling->empty()) {
    keys.fault("rope_scaling", "scaled rotary positions are not computed here; only null");
  }
  const json* parameters = keys.find("rope_parameters");
  if (parameters == nullptr) return base;
  for (const auto& [key, value] : parameters->items()) {
    if (key == "rope_theta" && value.is_number()) {
      base = value.get<double>();
    } else if (!((key == "rope_type" || key == "type") && value == "default")) {
      keys.fault("rope_parameters", "scaled rotary positions are not computed here; only rope_type default");
      break;
    }
  }
  return base;
}

ModelConfig read_gpt2(KeyReader& keys) {
  ModelConfig m;
  m.num_layers = keys.integer("n_layer");
  m.hidden_size = keys.integer("n_embd");
  m.num_attention_heads = m.num_query_groups = keys.integer("n_head");
  m.max_position_embeddings = keys.integer("n_positions", 1024);
  m.vocab_size = keys.integer("vocab_size");
  m.ffn_hidden_size = keys.integer("n_inner", 4 * m.hidden_size);
  m.norm_epsilon = keys.real("layer_norm_epsilon", 1e-5);
  m.init_method_std = keys.real("initializer_range", 0.02);
  m.hidden_dropout = keys.real("resid_pdrop", 0.1);
  m.attention_dropout = keys.real("attn_pdrop", 0.1);
  if (keys.real("embd_pdrop", m.hidden_dropout) != m.hidden_dropout) {
    keys.fault("embd_pdrop", fmt::format("must equal resid_pdrop {}: one dropout serves both", m.hidden_dropout));
  }
  m.tie_embeddings = keys.flag("tie_word_embeddings", true);
  keys.one_of("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh"});
  keys.only("scale_attn_weights", true, "unscaled scores are not computed here");
  keys.only("scale_attn_by_inverse_layer_idx", false, "scores scaled by layer are not computed here");
  return m;
}

ModelConfig read_llama(KeyReader& keys) {
  ModelConfig m;
  m.num_layers = keys.integer("num_hidden_layers");
  m.hidden_size = keys.integer("hidden_size");
  m.num_attention_heads = keys.integer("num_attention_heads");
  m.num_query_groups = keys.integer("num_key_value_heads", m.num_attention_heads);
  m.ffn_hidden_size = keys.integer("intermediate_size");
  m.max_position_embeddings = keys.integer("max_position_embeddings", 2048);
  m.vocab_size = keys.integer("vocab_size");
  m.kv_channels = keys.integer("head_dim", std::max<int64_t>(m.hidden_size / m.num_attention_heads, 1));
  m.norm = NormType::RMSNorm;
  m.activation = ActivationType::SwiGlu;
  m.position = PositionType::Rope;
  m.norm_epsilon = keys.real("rms_norm_eps", 1e-6);
  m.rotary_base = rotary_base(keys);
  m.init_method_std = keys.real("initializer_range", 0.02);
  m.hidden_dropout = 0;
  m.attention_dropout = keys.real("attention_dropout", 0);
  m.tie_embeddings = keys.flag("tie_word_embeddings", false);
  m.add_qkv_bias = m.add_bias_linear = keys.flag("attention_bias", false);
  if (keys.flag("mlp_bias", false) != m.add_bias_linear) {
    keys.fault("mlp_bias", "must equal attention_bias: biases are on all linear layers or on none");
  }
  keys.one_of("hidden_act", "silu", {"silu", "swish"});
  keys.refuse("sliding_window", "attention over a window is not computed here; only null");
  if (keys.real("partial_rotary_factor", 1) != 1) {
    keys.fault("partial_rotary_factor", "only 1: all channels of a head are rotated");
  }
  return m;
}

void check_shape(KeyReader& keys, ModelConfig& m, bool gpt2) {
  if (m.kv_channels == 0 && m.num_attention_heads > 0) {
    if (m.hidden_size % m.num_attention_heads != 0) {
      keys.fault(gpt2 ? "n_head" : "num_attention_heads", fmt::format("must divide the width {}", m.hidden_size));
      return;
    }
    m.kv_channels = m.hidden_size / m.num_attention_heads;
  }
  if (m.num_query_groups > 0 && m.num_attention_heads % m.num_query_groups != 0) {
    keys.fault("num_key_value_heads", fmt::format("must divide the {} heads", m.num_attention_heads));
  }
  if (!gpt2 && m.kv_channels % 2 != 0) keys.fault("head_dim", "must be even: rotary positions turn pairs");
}

std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return "float64";
    case DType::BFloat16:
      return "bfloat16";
    case DType::Float16:
      return "float16";
    default:
      return "float32";
  }
}

}  // namespace

HubConfig parse_hub_config(const std::string& text, const std::string& path) {
  json config;
  try {
    config = json::parse(text);
  } catch (const json::exception& error) {
    throw ConfigError(fmt::format("{}: is not JSON ({})", path, error.what()));
  }
  if (!config.is_object()) throw ConfigError(fmt::format("{}: is no object", path));
  KeyReader keys(config, path);
  const std::string type = keys.text("model_type", "");
  HubConfig hub;
  if (type == "gpt2") {
    hub.family = HubFamily::Gpt2;
    hub.model = read_gpt2(keys);
  } else if (type == "llama" || type == "mistral") {
    // Mistral without its window is Llama.
    hub.family = HubFamily::Llama;
    hub.model = read_llama(keys);
  } else {
    throw ConfigError(
        fmt::format("{}: model_type = \"{}\": only gpt2, llama and mistral (without its window) are "
                    "computed here",
                    path, type));
  }
  hub.torch_dtype = keys.text("torch_dtype", keys.text("dtype", ""));
  check_shape(keys, hub.model, hub.family == HubFamily::Gpt2);
  refuse_extensions(keys);
  keys.finish();
  hub.model.name = type;
  hub.model.seq_length = hub.model.max_position_embeddings;
  return hub;
}

HubFamily hub_family(const ModelConfig& m) {
  const bool gpt2 = m.norm == NormType::LayerNorm && m.activation == ActivationType::Gelu &&
                    m.position == PositionType::Learned && m.add_bias_linear && m.add_qkv_bias &&
                    m.num_query_groups == m.num_attention_heads && m.query_size() == m.hidden_size;
  if (gpt2) return HubFamily::Gpt2;
  std::vector<std::string> wrong;
  if (m.norm != NormType::RMSNorm) wrong.push_back("LayerNorm");
  if (m.activation != ActivationType::SwiGlu) wrong.push_back("GELU");
  if (m.position != PositionType::Rope) wrong.push_back("positions other than rotary");
  if (m.rotary_percent != 1) wrong.push_back(fmt::format("--rotary-percent {}", m.rotary_percent));
  if (m.add_bias_linear != m.add_qkv_bias) wrong.push_back("biases on some linear layers only");
  if (wrong.empty()) return HubFamily::Llama;
  throw ConfigError(
      fmt::format("the model is neither GPT-2 (LayerNorm, GELU, learned positions, biases, no grouped KV heads) nor "
                  "Llama (RMSNorm, SwiGLU, rotary positions on all channels): for Llama it has {}",
                  fmt::join(wrong, ", ")));
}

std::string hub_config_text(const ModelConfig& m, DType dtype, const HubTokens& tokens) {
  nlohmann::ordered_json c;
  if (hub_family(m) == HubFamily::Gpt2) {
    c["architectures"] = {"GPT2LMHeadModel"};
    c["model_type"] = "gpt2";
    c["activation_function"] = "gelu_new";
    c["n_layer"] = m.num_layers;
    c["n_embd"] = m.hidden_size;
    c["n_head"] = m.num_attention_heads;
    c["n_inner"] = m.ffn_hidden_size;
    c["n_positions"] = m.max_position_embeddings;
    c["layer_norm_epsilon"] = m.norm_epsilon;
    c["embd_pdrop"] = c["resid_pdrop"] = m.hidden_dropout;
    c["attn_pdrop"] = m.attention_dropout;
    c["scale_attn_weights"] = true;
  } else {
    c["architectures"] = {"LlamaForCausalLM"};
    c["model_type"] = "llama";
    c["hidden_act"] = "silu";
    c["num_hidden_layers"] = m.num_layers;
    c["hidden_size"] = m.hidden_size;
    c["intermediate_size"] = m.ffn_hidden_size;
    c["num_attention_heads"] = m.num_attention_heads;
    c["num_key_value_heads"] = m.num_query_groups;
    c["head_dim"] = m.kv_channels;
    c["max_position_embeddings"] = m.max_position_embeddings;
    c["rms_norm_eps"] = m.norm_epsilon;
    c["rope_theta"] = m.rotary_base;
    c["rope_scaling"] = nullptr;
    c["attention_bias"] = c["mlp_bias"] = m.add_bias_linear;
    c["attention_dropout"] = m.attention_dropout;
  }
  c["initializer_range"] = m.init_method_std;
  c["vocab_size"] = m.vocab_size;
  c["tie_word_embeddings"] = m.tie_embeddings;
  c["bos_token_id"] = tokens.bos < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(tokens.bos);
  c["eos_token_id"] = tokens.eos < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(tokens.eos);
  c["torch_dtype"] = torch_name(dtype);
  c["use_cache"] = true;
  return c.dump(2) + "\n";
}

}  // namespace triax::io

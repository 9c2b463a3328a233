#include "io/weights/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "io/weights/attributes.h"

namespace triax::io {

template <>
struct EnumNames<model::NormType> {
  static constexpr std::array<std::string_view, 2> names{"LayerNorm", "RMSNorm"};
};
template <>
struct EnumNames<model::ActivationType> {
  static constexpr std::array<std::string_view, 2> names{"gelu", "swiglu"};
};
template <>
struct EnumNames<model::PositionType> {
  static constexpr std::array<std::string_view, 3> names{"learned_absolute", "rope", "none"};
};

namespace {

constexpr const char* kFormat = "triax-weights";
constexpr int64_t kWeightsVersion = 1;

/// One list of fields for both directions.
template <class Model, class Visitor>
void visit_model(Model& m, Visitor&& visit) {
  visit("model.name", m.name);
  visit("model.num_layers", m.num_layers);
  visit("model.hidden_size", m.hidden_size);
  visit("model.ffn_hidden_size", m.ffn_hidden_size);
  visit("model.num_attention_heads", m.num_attention_heads);
  visit("model.num_query_groups", m.num_query_groups);
  visit("model.kv_channels", m.kv_channels);
  visit("model.max_position_embeddings", m.max_position_embeddings);
  visit("model.seq_length", m.seq_length);
  visit("model.vocab_size", m.vocab_size);
  visit("model.make_vocab_size_divisible_by", m.make_vocab_size_divisible_by);
  visit("model.normalization", m.norm);
  visit("model.activation", m.activation);
  visit("model.position_embedding_type", m.position);
  visit("model.rotary_base", m.rotary_base);
  visit("model.rotary_percent", m.rotary_percent);
  visit("model.add_bias_linear", m.add_bias_linear);
  visit("model.add_qkv_bias", m.add_qkv_bias);
  visit("model.tie_embeddings", m.tie_embeddings);
  visit("model.norm_epsilon", m.norm_epsilon);
  visit("model.hidden_dropout", m.hidden_dropout);
  visit("model.attention_dropout", m.attention_dropout);
  visit("model.init_method_std", m.init_method_std);
}

template <class Options, class Visitor>
void visit_tokenizer(Options& t, Visitor&& visit) {
  visit("tokenizer.type", t.type);
  visit("tokenizer.model", t.model);
  visit("tokenizer.vocab_file", t.vocab_file);
  visit("tokenizer.merge_file", t.merge_file);
  visit("tokenizer.vocab_size", t.vocab_size);
  visit("tokenizer.tiktoken_pattern", t.tiktoken_pattern);
  visit("tokenizer.tiktoken_num_special_tokens", t.tiktoken_num_special_tokens);
}

}  // namespace

void write_header(hid_t file, const WeightsHeader& header) {
  AttributeWriter write(file);
  write("format", std::string(kFormat));
  write("version", kWeightsVersion);
  write_model_header(file, header);
}

void write_model_header(hid_t file, const WeightsHeader& header) {
  AttributeWriter write(file);
  write("dtype", std::string(name_of(header.dtype)));
  write("iteration", header.iteration);
  write("consumed_samples", header.consumed_samples);
  write("tokenizer.hash", header.tokenizer_hash);
  visit_tokenizer(header.tokenizer, write);
  visit_model(header.model, write);
}

WeightsHeader read_header(hid_t file, const std::string& path) {
  AttributeReader read(file, path);
  std::string format;
  if (read.has("format")) read("format", format);
  if (format != kFormat) throw RunTimeError(fmt::format("{}: not a weights file of triax (no attribute format)", path));
  int64_t version = 0;
  read("version", version);
  if (version > kWeightsVersion) {
    throw RunTimeError(
        fmt::format("{}: version {} of the format, this program reads up to {}", path, version, kWeightsVersion));
  }
  return read_model_header(file, path);
}

WeightsHeader read_model_header(hid_t file, const std::string& path) {
  AttributeReader read(file, path);
  WeightsHeader header;
  std::string dtype;
  read("dtype", dtype);
  for (const DType d : {DType::Float64, DType::Float32, DType::BFloat16, DType::Float16}) {
    if (name_of(d) == dtype) header.dtype = d;
  }
  read("iteration", header.iteration);
  read("consumed_samples", header.consumed_samples);
  read("tokenizer.hash", header.tokenizer_hash);
  visit_tokenizer(header.tokenizer, read);
  visit_model(header.model, read);
  return header;
}

std::vector<std::string> architecture_differences(const model::ModelConfig& file, const model::ModelConfig& run) {
  std::vector<std::string> found;
  const auto compare = [&found](const char* what, double in_file, double in_run) {
    if (in_file != in_run) found.push_back(fmt::format("{} {:g} in the file, {:g} in the run", what, in_file, in_run));
  };
  const auto number = [](auto value) { return static_cast<double>(value); };
  compare("num_layers", number(file.num_layers), number(run.num_layers));
  compare("hidden_size", number(file.hidden_size), number(run.hidden_size));
  compare("ffn_hidden_size", number(file.ffn_hidden_size), number(run.ffn_hidden_size));
  compare("num_attention_heads", number(file.num_attention_heads), number(run.num_attention_heads));
  compare("num_query_groups", number(file.num_query_groups), number(run.num_query_groups));
  compare("kv_channels", number(file.kv_channels), number(run.kv_channels));
  compare("vocab_size", number(file.vocab_size), number(run.vocab_size));
  compare("normalization (0 LayerNorm, 1 RMSNorm)", number(file.norm), number(run.norm));
  compare("activation (0 GELU, 1 SwiGLU)", number(file.activation), number(run.activation));
  compare("position embedding (0 learned, 1 rope, 2 none)", number(file.position), number(run.position));
  compare("rotary_base", file.rotary_base, run.rotary_base);
  compare("rotary_percent", file.rotary_percent, run.rotary_percent);
  compare("norm_epsilon", file.norm_epsilon, run.norm_epsilon);
  compare("linear biases", number(file.add_bias_linear), number(run.add_bias_linear));
  compare("q, k, v biases", number(file.add_qkv_bias), number(run.add_qkv_bias));
  compare("tied embeddings", number(file.tie_embeddings), number(run.tie_embeddings));
  return found;
}

}  // namespace triax::io

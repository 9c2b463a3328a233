// Models of Hugging Face's transformers: configurations and names both ways, weights of files that transformers wrote
// come in and go out with the same bits, and what is not computed here is refused by key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "comm/phantom.h"
#include "io/checkpoint/convert.h"
#include "io/hugging_face/byte_size.h"
#include "io/hugging_face/checkpoint_tensors.h"
#include "io/hugging_face/tokenizer_files.h"
#include "io/hugging_face/transpose.h"
#include "kernels/null_device.h"
#include "model/presets.h"
#include "model/stage.h"
#include "tests/unit/temporary_directory.h"

namespace triax::io {
namespace {

using test::TemporaryDirectory;
using ::testing::HasSubstr;

std::string fixture(const std::string& name) {
  return std::string(TRIAX_SOURCE_DIR) + "/tests/fixtures/huggingface/" + name;
}

std::string fault_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

/// The fixture's config.json with some keys replaced.
std::string config_with(const std::string& model, const nlohmann::json& changes) {
  nlohmann::json config = nlohmann::json::parse(test::read_file(fixture(model) + "/config.json"));
  config.update(changes);
  return config.dump();
}

/// Name and shape of every parameter that the model declares, by name.
std::map<std::string, std::vector<int64_t>> declared(const model::ModelConfig& config) {
  HeapProvider memory;
  Arena arena(memory);
  comm::GroupInfo group;
  group.name = "tp";
  group.world_ranks = {0};
  comm::PhantomCommunicator tensor(group, memory);
  parallel::LayerContext context;
  kernels::NullDevice device;
  context.device = &device;
  context.arena = &arena;
  context.tensor = &tensor;
  parallel::ParameterStore store;
  const auto chunks =
      model::make_chunks({config, parallel::make_layer_map(config.num_layers, 1, 1, 0, 0, {}), {}, 0}, context, store);
  std::map<std::string, std::vector<int64_t>> found;
  for (const parallel::Parameter& p : store.parameters()) found[p.name] = p.spec.global_shape;
  return found;
}

TEST(HubTensors, parts_are_exactly_the_parameters_of_the_model) {
  model::ModelConfig untied = model::find_preset("t0")->config;
  untied.tie_embeddings = false;
  model::ModelConfig biased = model::find_preset("t1")->config;
  biased.add_bias_linear = biased.add_qkv_bias = biased.tie_embeddings = true;
  for (const model::ModelConfig& config :
       {model::find_preset("t0")->config, model::find_preset("t1")->config, untied, biased}) {
    std::map<std::string, std::vector<int64_t>> found;
    for (const HubTensor& tensor : hub_tensors(config, hub_family(config))) {
      for (const TensorPart& part : tensor.parts) EXPECT_TRUE(found.emplace(part.name, part.shape).second) << part.name;
    }
    EXPECT_EQ(found, declared(config));
  }
}

TEST(HubConfig, what_transformers_wrote) {
  const HubModel gpt2(fixture("gpt2"));
  const model::ModelConfig& g = gpt2.config().model;
  EXPECT_EQ(gpt2.config().family, HubFamily::Gpt2);
  EXPECT_EQ(g.num_layers, 2);
  EXPECT_EQ(g.ffn_hidden_size, 128);
  EXPECT_EQ(g.kv_channels, 8);
  EXPECT_EQ(g.seq_length, 32);
  EXPECT_TRUE(g.tie_embeddings);
  EXPECT_EQ(gpt2.dtype(), DType::Float32);
  const HubModel llama(fixture("llama"));
  const model::ModelConfig& l = llama.config().model;
  EXPECT_EQ(l.num_query_groups, 2);
  EXPECT_EQ(l.ffn_hidden_size, 48);
  EXPECT_EQ(l.norm_epsilon, 1e-6);
  EXPECT_EQ(l.rotary_base, 10000);
  EXPECT_FALSE(l.tie_embeddings || l.add_bias_linear || l.add_qkv_bias);
  EXPECT_EQ(llama.dtype(), DType::BFloat16);
}

TEST(HubConfig, both_ways) {
  for (const char* name : {"t0", "t1", "gpt2-124m", "llama3-8b", "llama2-70b"}) {
    model::ModelConfig config = model::find_preset(name)->config;
    config.hidden_dropout = config.norm == model::NormType::RMSNorm ? 0 : 0.25;  // Llama has none
    config.init_method_std = 0.017;
    const HubConfig back = parse_hub_config(hub_config_text(config, DType::BFloat16, {1, 2}), "config.json");
    config.name = back.model.name;
    EXPECT_EQ(back.model, config) << name;
    EXPECT_EQ(back.torch_dtype, "bfloat16");
  }
}

TEST(HubConfig, refuses_by_key_what_is_not_computed_here) {
  const nlohmann::json yarn = {{"type", "yarn"}, {"factor", 4.0}};
  const std::vector<std::tuple<const char*, nlohmann::json, std::string>> faults = {
      {"llama", {{"rope_scaling", yarn}}, "rope_scaling = {\"factor\":4.0,\"type\":\"yarn\"}: scaled rotary positions"},
      {"llama", {{"rope_parameters", {{"rope_type", "llama3"}}}}, "rope_parameters"},
      {"llama", {{"sliding_window", 4096}}, "sliding_window = 4096: attention over a window"},
      {"llama", {{"model_type", "mistral"}, {"sliding_window", 4096}}, "sliding_window"},
      {"llama", {{"num_local_experts", 8}}, "num_local_experts = 8: mixtures of experts"},
      {"llama", {{"model_type", "mixtral"}}, "model_type = \"mixtral\""},
      {"llama", {{"hidden_act", "relu"}}, "hidden_act = \"relu\": is not computed here; only silu"},
      {"llama", {{"quantization_config", {{"bits", 4}}}}, "quantization_config"},
      {"llama", {{"attention_bias", true}}, "mlp_bias = (not given): must equal attention_bias"},
      {"llama", {{"partial_rotary_factor", 0.5}}, "partial_rotary_factor"},
      {"llama", {{"num_key_value_heads", 3}}, "num_key_value_heads = 3: must divide the 4 heads"},
      {"llama", {{"hidden_size", "wide"}}, "hidden_size = \"wide\": must be a whole number"},
      {"llama", {{"residual_scale", 0.5}}, "residual_scale = 0.5: is not known and could change"},
      {"gpt2",
       {{"activation_function", "gelu"}},
       "activation_function = \"gelu\": is not computed here; only gelu_new"},
      {"gpt2", {{"scale_attn_by_inverse_layer_idx", true}}, "scale_attn_by_inverse_layer_idx"},
      {"gpt2", {{"scale_attn_weights", false}}, "scale_attn_weights"},
      {"gpt2", {{"embd_pdrop", 0.2}}, "embd_pdrop = 0.2: must equal resid_pdrop 0.1"},
      {"gpt2", {{"n_embd", nullptr}}, "n_embd = null: is required"},
      {"gpt2", {{"n_head", 5}}, "n_head = 5: must divide the width 32"},
  };
  for (const auto& [model, changes, words] : faults) {
    const std::string text = config_with(model, changes);
    EXPECT_THAT(fault_of([&] { parse_hub_config(text, "config.json"); }), HasSubstr("config.json: " + words))
        << changes;
  }
  // Harmless: unknown but off, a window of null, the default rotary positions in the newer spelling.
  EXPECT_EQ(
      parse_hub_config(config_with("llama", {{"new_flag", false}, {"sliding_window", nullptr}}), "c").model.num_layers,
      2);
  const nlohmann::json newer = {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}}};
  EXPECT_EQ(parse_hub_config(config_with("llama", newer), "c").model.rotary_base, 5e5);
  EXPECT_THAT(fault_of([] { parse_hub_config("[", "c"); }), HasSubstr("c: is not JSON"));
}

TEST(HubConfig, models_of_neither_family_are_not_exported) {
  model::ModelConfig mixed = model::find_preset("t0")->config;
  mixed.activation = model::ActivationType::SwiGlu;
  EXPECT_THAT(fault_of([&] { hub_family(mixed); }),
              HasSubstr("for Llama it has LayerNorm, positions other than rotary"));
  model::ModelConfig partial = model::find_preset("t1")->config;
  partial.rotary_percent = 0.5;
  EXPECT_THAT(fault_of([&] { hub_family(partial); }), HasSubstr("--rotary-percent 0.5"));
}

/// fixture -> checkpoint -> Hugging Face directory. Returns the directory.
std::string round_trip(const std::string& from, const TemporaryDirectory& work, DType dtype, int64_t most) {
  const HubModel hub(from);
  CheckpointHeader header;
  header.weights.model = hub.config().model;
  header.weights.dtype = dtype;
  CheckpointSink sink(work.file("checkpoint"), header, 0);
  hub.copy_to(sink, dtype);
  sink.commit();
  CheckpointReader reader(resolve_checkpoint(work.file("checkpoint")));
  export_hub(CheckpointSource(reader, kWeight), reader.header().weights.model, work.file("out"), {dtype, most, {}});
  return work.file("out");
}

TEST(HubModel, comes_in_and_goes_out_with_the_same_bits) {
  for (const auto& [name, dtype, most] :
       {std::tuple{"gpt2", DType::Float32, int64_t{1} << 30}, std::tuple{"llama", DType::BFloat16, int64_t{10'000}}}) {
    const TemporaryDirectory work;
    const std::string out = round_trip(fixture(name), work, dtype, most);
    const SafetensorsDirectory before(fixture(name)), after(out);
    ASSERT_EQ(before.items().size(), after.items().size());
    for (const auto& [tensor, item] : before.items()) {
      const auto other = after.find(tensor);
      ASSERT_NE(other.entry, nullptr) << tensor;
      EXPECT_EQ(other.entry->shape, item.entry->shape) << tensor;
      EXPECT_EQ(other.entry->type, item.entry->type) << tensor;
      const auto a = item.bytes(), b = other.bytes();
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << tensor;
    }
    const HubModel back(out);
    EXPECT_EQ(back.config().model, HubModel(fixture(name)).config().model);
    EXPECT_EQ(std::filesystem::exists(out + "/model.safetensors.index.json"), std::string(name) == "llama");
  }
}

TEST(HubModel, narrower_and_wider_types_come_back_where_nothing_is_lost) {
  const TemporaryDirectory work;
  // bf16 -> fp32 -> bf16 loses nothing.
  const std::string wide = round_trip(fixture("llama"), work, DType::Float32, int64_t{1} << 30);
  const TemporaryDirectory again;
  const std::string narrow = round_trip(wide, again, DType::BFloat16, int64_t{1} << 30);
  const SafetensorsDirectory before(fixture("llama")), after(narrow);
  for (const auto& [tensor, item] : before.items()) {
    const auto a = item.bytes(), b = after.find(tensor).bytes();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << tensor;
  }
}

/// The fixture "gpt2" with tensors changed by `edit`, as one file.
std::string edited(const TemporaryDirectory& work, const std::string& name,
                   const std::function<void(std::vector<SafetensorsEntry>&)>& edit) {
  const SafetensorsDirectory before(fixture("gpt2"));
  SafetensorsPlan plan;
  for (const auto& [tensor, item] : before.items()) plan.tensors.push_back(*item.entry);
  edit(plan.tensors);
  SafetensorsWriter writer(work.file(name), plan, int64_t{1} << 30);
  for (const SafetensorsEntry& entry : plan.tensors) {
    const auto item = before.find(entry.name.starts_with("wte") ? "transformer." + entry.name : entry.name);
    const auto bytes = item.entry ? item.bytes() : before.find("transformer.wte.weight").bytes();
    writer.write(bytes.data(), std::min<size_t>(bytes.size(), static_cast<size_t>(entry.numel()) * 4));
  }
  writer.commit();
  std::filesystem::copy_file(fixture("gpt2/config.json"), work.file(name) + "/config.json");
  return work.file(name);
}

TEST(HubModel, tensors_must_be_those_of_the_configuration) {
  const TemporaryDirectory work;
  using Entries = std::vector<SafetensorsEntry>;
  const auto load = [](const std::string& directory) { return fault_of([&] { HubModel unused(directory); }); };
  const auto index_of = [](Entries& e, const std::string& name) {
    return std::find_if(e.begin(), e.end(), [&](const auto& entry) { return entry.name == name; });
  };
  EXPECT_THAT(load(edited(work, "missing", [&](Entries& e) { e.erase(index_of(e, "transformer.h.1.mlp.c_fc.bias")); })),
              HasSubstr("tensor 'transformer.h.1.mlp.c_fc.bias' is missing"));
  EXPECT_THAT(load(edited(work, "extra",
                          [&](Entries& e) {
                            e.push_back({"transformer.h.2.ln_1.bias", "F32", {32}});
                          })),
              HasSubstr("tensor 'transformer.h.2.ln_1.bias' has no place in the model of config.json"));
  EXPECT_THAT(
      load(edited(work, "shape",
                  [&](Entries& e) {
                    index_of(e, "transformer.h.0.mlp.c_fc.weight")->shape = {128, 32};
                  })),
      HasSubstr("tensor 'transformer.h.0.mlp.c_fc.weight' has the shape [128, 32], config.json wants [32, 128]"));
  EXPECT_THAT(load(edited(work, "integers", [&](Entries& e) { index_of(e, "transformer.ln_f.bias")->type = "I32"; })),
              HasSubstr("tensor 'transformer.ln_f.bias' is I32: weights must be"));
  // Harmless: the published files' missing prefix, old buffers, a stored head that equals the embedding.
  EXPECT_EQ(
      load(edited(work, "prefix", [&](Entries& e) { index_of(e, "transformer.wte.weight")->name = "wte.weight"; })),
      "");
  EXPECT_EQ(load(edited(work, "mask", [&](Entries& e) { e.push_back({"h.0.attn.bias", "F32", {1, 1, 4, 4}}); })), "");
  EXPECT_EQ(load(edited(work, "tied", [&](Entries& e) { e.push_back({"lm_head.weight", "F32", {61, 32}}); })), "");
  EXPECT_THAT(load(edited(work, "untied",
                          [&](Entries& e) {
                            e.push_back({"lm_head.weight", "F32", {60, 32}});
                          })),
              HasSubstr("lm_head.weight differs from transformer.wte.weight"));
  // An export never mixes with what is there.
  class None final : public TensorSource {
    DType dtype() const override { return DType::Float32; }
    void read(const std::string&, const std::vector<int64_t>&, Tensor) const override {}
  };
  EXPECT_THAT(fault_of([&] { export_hub(None(), model::find_preset("t0")->config, work.file("prefix"), {}); }),
              HasSubstr("already holds weights (model.safetensors)"));
}

TEST(CheckpointSource, says_what_it_cannot_give) {
  const TemporaryDirectory work;
  CheckpointHeader header;
  header.weights.model = model::find_preset("t0")->config;
  {
    CheckpointSink sink(work.path(), header, 0);
    std::vector<float> values(64);
    sink.write("model.norm.weight", {64}, Tensor(values.data(), DType::Float32, {64}));
    sink.commit();
  }
  CheckpointReader reader(resolve_checkpoint(work.path()));
  const CheckpointSource source(reader, kWeight);
  std::vector<float> out(64);
  const Tensor view(out.data(), DType::Float32, {64});
  EXPECT_EQ(fault_of([&] { source.read("model.norm.weight", {64}, view); }), "");
  EXPECT_THAT(fault_of([&] { source.read("model.norm.bias", {64}, view); }),
              HasSubstr("model.norm.bias of kind weight is missing"));
  EXPECT_THAT(fault_of([&] {
                source.read("model.norm.weight", {8, 8}, view);
              }),
              HasSubstr("has shape [64], the model wants [8, 8]"));
  EXPECT_THAT(fault_of([&] { CheckpointSource(reader, kMaster); }), HasSubstr("has no tensors of kind master"));
  header.weights.model.norm = model::NormType::RMSNorm;
  EXPECT_THAT(fault_of([&] { CheckpointSink(work.path(), header, 0); }), HasSubstr("exists already"));
  header.weights.iteration = 1;
  CheckpointSink other(work.path(), header, 0);
  other.write("model.norm.gain", {64}, view);
  other.commit();
  EXPECT_THAT(fault_of([&] {
                CheckpointReader again(resolve_checkpoint(work.path(), 1));
                CheckpointSource(again, kWeight);
              }),
              HasSubstr("for Llama it has"));
}

TEST(ByteSize, units_of_both_kinds) {
  EXPECT_EQ(parse_byte_size("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_byte_size("1.5KB"), 1500);
  EXPECT_EQ(parse_byte_size("1GiB"), int64_t{1} << 30);
  EXPECT_EQ(parse_byte_size("7"), 7);
  for (const char* text : {"", "GB", "0", "-1GB", "5 GB", "5gb", "1e30GB", "nanGB"}) {
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
  }
}

TEST(Convert, rounds_once_to_nearest_even) {
  std::vector<double> values = {
      1.0, 1.0 + 0x1p-8, 1.0 + 0x1p-8 + 0x1p-40, 1.0 + 3 * 0x1p-8, -1.0 - 0x1p-8 - 0x1p-40, 1e300, -1e300, 0.0, -0.0};
  std::vector<bf16> narrow(values.size());
  const auto numel = static_cast<int64_t>(values.size());
  convert(Tensor(values.data(), DType::Float64, {numel}), Tensor(narrow.data(), DType::BFloat16, {numel}));
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> wanted = {1, 1, 1 + 0x1p-7, 1 + 2 * 0x1p-7, -1 - 0x1p-7, infinity, -infinity, 0, -0.0};
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(static_cast<double>(static_cast<float>(narrow[i])), wanted[i]) << values[i];
  }
  EXPECT_TRUE(std::signbit(static_cast<float>(narrow.back())));
  std::vector<double> back(values.size());
  convert(Tensor(narrow.data(), DType::BFloat16, {numel}), Tensor(back.data(), DType::Float64, {numel}));
  EXPECT_EQ(back, wanted);
}

TEST(TransposeElements, every_element_size) {
  std::vector<int16_t> from(70 * 130), to(from.size()), back(from.size());
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int16_t>(i);
  transpose_elements(std::as_bytes(std::span(from)), 70, 130, 2, std::as_writable_bytes(std::span(to)));
  EXPECT_EQ(to[1], 130);
  EXPECT_EQ(to[70], 1);
  EXPECT_EQ(to.back(), from.back());
  transpose_elements(std::as_bytes(std::span(to)), 130, 70, 2, std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, from);
}

TEST(TokenizerFiles, go_out_under_hugging_face_names_and_come_back) {
  const TemporaryDirectory work;
  const std::string files = std::string(TRIAX_SOURCE_DIR) + "/tests/fixtures/tokenizer/";
  std::filesystem::create_directories(work.file("a"));
  const CopiedTokenizer out = export_tokenizer(
      {.type = "GPT2BPETokenizer", .vocab_file = files + "vocab.json", .merge_file = files + "merges.txt"},
      work.file("a"));
  EXPECT_THAT(out.files, ::testing::ElementsAre("vocab.json", "merges.txt"));
  EXPECT_EQ(out.options.vocab_file, work.file("a/vocab.json"));
  const CopiedTokenizer back = import_tokenizer(work.file("a"), work.file("b"));
  EXPECT_EQ(back.options.type, "GPT2BPETokenizer");
  EXPECT_EQ(make_tokenizer(back.options)->hash(), make_tokenizer(out.options)->hash());
  const CopiedTokenizer fast =
      export_tokenizer({.type = "HuggingFaceTokenizer", .model = files + "tokenizer.json"}, work.file("c"));
  EXPECT_THAT(fast.files, ::testing::ElementsAre("tokenizer.json"));
  EXPECT_EQ(import_tokenizer(work.file("c"), work.file("d")).options.type, "HuggingFaceTokenizer");
  EXPECT_EQ(import_tokenizer(fixture("gpt2"), work.file("e")).options.type, "");
  EXPECT_TRUE(export_tokenizer({.type = "NullTokenizer", .vocab_size = 7}, work.file("f")).files.empty());
  EXPECT_THAT(fault_of([&] { export_tokenizer({.type = "Llama2Tokenizer", .model = "gone.model"}, work.path()); }),
              HasSubstr("'gone.model' is not there"));
  EXPECT_THAT(fault_of([&] { export_tokenizer({.type = "TikTokenizer", .model = "x"}, work.path()); }),
              HasSubstr("--no-tokenizer"));
}

}  // namespace
}  // namespace triax::io

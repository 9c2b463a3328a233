// Presets against the parameter counts that model cards and papers publish.
#include <gtest/gtest.h>

#include <set>

#include "model/counts.h"
#include "model/presets.h"

using namespace triax::model;

namespace {

int64_t parameters(const std::string& name) {
  const Preset* preset = find_preset(name);
  return preset == nullptr ? -1 : parameter_count(preset->config);
}

TEST(Presets, parameter_counts_are_the_published_ones) {
  EXPECT_EQ(parameters("gpt2-124m"), 124439808);
  EXPECT_EQ(parameters("gpt2-350m"), 354823168);
  EXPECT_EQ(parameters("gpt2-774m"), 774030080);
  EXPECT_EQ(parameters("gpt2-1.5b"), 1557611200);
  EXPECT_EQ(parameters("gpt3-175b"), 174604259328);  // 174,600M in Brown et al. 2020, table D.1
  EXPECT_EQ(parameters("llama2-7b"), 6738415616);
  EXPECT_EQ(parameters("llama2-13b"), 13015864320);
  EXPECT_EQ(parameters("llama2-70b"), 68976648192);
  EXPECT_EQ(parameters("llama3-8b"), 8030261248);
  EXPECT_EQ(parameters("llama3-70b"), 70553706496);
  EXPECT_EQ(parameters("llama-10m"), 12496960);
}

TEST(Presets, table_1_has_the_sizes_of_the_paper) {
  const std::vector<std::pair<std::string, double>> billions = {
      {"1.7b", 1.7}, {"3.6b", 3.6},   {"7.5b", 7.5},   {"18b", 18.4},   {"39b", 39.1},
      {"76b", 76.1}, {"145b", 145.6}, {"310b", 310.1}, {"530b", 529.6}, {"1t", 1008.0}};
  for (const auto& [name, size] : billions) {
    EXPECT_NEAR(static_cast<double>(parameters("megatron-" + name)) / 1e9, size, 0.051) << name;
  }
}

TEST(Presets, every_preset_is_a_whole_model) {
  std::set<std::string> names;
  for (const Preset& preset : presets()) {
    const ModelConfig& c = preset.config;
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_EQ(c.kv_channels * c.num_attention_heads, c.hidden_size) << c.name;
    EXPECT_EQ(c.num_attention_heads % c.num_query_groups, 0) << c.name;
    EXPECT_GE(c.max_position_embeddings, c.seq_length) << c.name;
    EXPECT_NE(list_presets().find("\n" + c.name + " "), std::string::npos) << c.name;
  }
  EXPECT_EQ(names.size(), 24u);
  EXPECT_EQ(find_preset("gpt5"), nullptr);
}

TEST(Presets, default_ffn_follows_megatron) {
  EXPECT_EQ(default_ffn_hidden_size(768, ActivationType::Gelu), 3072);
  EXPECT_EQ(default_ffn_hidden_size(4096, ActivationType::SwiGlu), 10880);  // int(4h * 2/3 / 64) * 64
  EXPECT_EQ(default_ffn_hidden_size(320, ActivationType::SwiGlu), 832);
}

}  // namespace

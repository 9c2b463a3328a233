// Texts made from the table: resolved.cfg repeats the run, docs/from-megatron.md is current, help is whole.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "io/options/options.h"
#include "io/options/validate.h"
#include "io/options/values.h"

using namespace triax;
using namespace triax::io;

namespace {

// Every field of the options as text, also those that no option writes.
std::string all_of(const RunOptions& o) {
  std::ostringstream text;
  text << resolved_cfg(o) << o.parallel.grid.data << ' ' << o.batch.num_micro_batches << ' ' << o.batch.train_iters
       << ' ' << o.data.vocab_size << ' ' << o.model.vocab_size;
  return text.str();
}

void expect_round_trip(const std::string& words, int world) {
  RunOptions first = parse_options(split_blanks(words)).options;
  resolve(first, world);
  const std::string path = testing::TempDir() + "resolved.cfg";
  std::ofstream(path) << resolved_cfg(first);
  RunOptions second = parse_options({"--config", path}).options;
  resolve(second, world);
  EXPECT_EQ(all_of(second), all_of(first)) << words;
  EXPECT_TRUE(second.model == first.model) << words;
}

TEST(ResolvedCfg, repeats_the_run) {
  expect_round_trip("--model llama2-70b --micro-batch-size 1 --train-iters 5 --lr 3e-4 --data-path 0.1 a 0.9 b", 8);
  expect_round_trip(
      "--model t1 --fp64 --micro-batch-size 1 --global-batch-size 8 --train-samples 160 --lr 0.0001234567890123 "
      "--mock-data --tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 2 "
      "--num-layers-per-virtual-pipeline-stage 1 --recompute-granularity full --recompute-method block "
      "--use-tp-pp-dp-mapping --check replicas --no-overlap-grad-reduce --seed 99 --lr-warmup-fraction 0.1",
      8);
  expect_round_trip(
      "--num-layers 6 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --vocab-size 500 --mock-data --fp16 "
      "--micro-batch-size 2 --train-iters 7 --lr 1 --optimizer sgd --lr-decay-style WSD --lr-wsd-decay-iters 2 "
      "--recompute-activations --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Ett|ttttL "
      "--lr-scaling linear --lr-base-batch-size 4 --disable-bias-linear --add-qkv-bias --loss-scale 128",
      4);
  expect_round_trip(
      "--model gpt2-124m --no-bf16 --seq-length 128 --skip-train --load x --data-path a --micro-batch-size 1", 1);
}

TEST(ResolvedCfg, names_no_run_directory) {
  const RunOptions options = parse_options({"--model", "t0", "--run-dir", "taken"}).options;
  EXPECT_EQ(resolved_cfg(options).find("taken"), std::string::npos);
}

TEST(ResolvedCfg, writes_every_model_field) {
  model::ModelConfig odd = parse_options({"--model", "t0"}).options.model;
  odd.rotary_percent = 0.5, odd.rotary_base = 123, odd.norm_epsilon = 3e-7, odd.init_method_std = 0.5;
  odd.hidden_dropout = 0.25, odd.attention_dropout = 0.125, odd.make_vocab_size_divisible_by = 7, odd.kv_channels = 24;
  odd.position = model::PositionType::None, odd.num_query_groups = 2, odd.vocab_size = 77, odd.name = "odd";
  odd.activation = model::ActivationType::SwiGlu, odd.ffn_hidden_size = 55, odd.max_position_embeddings = 999;
  odd.add_bias_linear = true, odd.add_qkv_bias = false, odd.tie_embeddings = false, odd.norm = model::NormType::RMSNorm;
  RunOptions options;
  options.model = odd;
  const std::string path = testing::TempDir() + "odd.cfg";
  std::ofstream(path) << resolved_cfg(options);
  EXPECT_TRUE(parse_options({"--config", path}).options.model == odd);
}

TEST(Table, names_are_unique_and_each_entry_is_whole) {
  std::set<std::string> names;
  std::set<std::string> honoured;
  size_t megatron = 0;
  for (const OptionEntry& entry : option_table()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    for (const std::string& alias : entry.aliases) EXPECT_TRUE(names.insert(alias).second) << alias;
    if (entry.status == OptionStatus::Honoured) {
      EXPECT_TRUE(entry.set != nullptr) << entry.name;
      EXPECT_FALSE(entry.help.empty()) << entry.name;
      honoured.insert(entry.name);
    } else if (entry.name != "context-parallel-size") {
      EXPECT_FALSE(entry.reason.empty()) << entry.name;
    }
    ++megatron;
  }
  EXPECT_GE(megatron, 250u);
  for (const OptionEntry& entry : option_table()) {
    if (entry.status != OptionStatus::Renamed) continue;
    EXPECT_TRUE(honoured.contains(entry.reason)) << entry.name;
  }
}

TEST(Table, a_getter_reads_back_what_its_setter_wrote) {
  const std::map<std::string, std::string> samples = {{"split", "1,2,3"},
                                                      {"device", "cpu"},
                                                      {"check", "replicas"},
                                                      {"pipeline-model-parallel-layout", "1,2"},
                                                      {"zero-stage", "0"},
                                                      {"lr-warmup-fraction", "0.5"},
                                                      {"collective-algorithm", "dp=ring"},
                                                      {"rotary-percent", "0.5"},
                                                      {"straggler-factor", "1.25"},
                                                      {"spiky-loss-factor", "12.5"}};
  for (const OptionEntry& entry : option_table()) {
    if (!entry.get || entry.status != OptionStatus::Honoured || entry.name == "group-query-attention") continue;
    std::string value = "17";
    if (entry.kind == ValueKind::Switch) value = "true";
    if (entry.value_name.find('|') != std::string::npos) value = entry.value_name.substr(0, entry.value_name.find('|'));
    if (entry.value_name == "X") value = "0.75";
    if (samples.contains(entry.name)) value = samples.at(entry.name);
    RunOptions options;
    options.parallel.recompute.granularity = parallel::RecomputeGranularity::Full;
    ASSERT_EQ(entry.set(options, {value}), "") << entry.name;
    EXPECT_EQ(join(entry.get(options)), value) << entry.name;
  }
}

TEST(Docs, from_megatron_is_what_the_table_says) {
  std::ifstream file(std::string(TRIAX_SOURCE_DIR) + "/docs/from-megatron.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), markdown_table()) << "write it again: triax options --markdown > docs/from-megatron.md";
}

TEST(Docs, help_has_every_honoured_option_under_its_group) {
  const std::string help = help_text("Usage: triax train [options]");
  for (const OptionEntry& entry : option_table()) {
    if (entry.status == OptionStatus::Honoured) {
      EXPECT_NE(help.find("\n  --" + entry.name + " "), std::string::npos) << entry.name;
    }
  }
  EXPECT_NE(help.find("\nParallelism\n"), std::string::npos);
  for (size_t begin = 0; begin < help.size();) {
    const size_t end = help.find('\n', begin);
    EXPECT_LE(end - begin, 122u) << help.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(Presets, configs_in_the_repository_parse) {
  for (const char* name : {"demo", "parity-t0", "parity-t1", "gpt3-175b"}) {
    const std::string path = std::string(TRIAX_SOURCE_DIR) + "/configs/" + name + ".cfg";
    EXPECT_NO_THROW(parse_options({"--config", path})) << path;
  }
}

}  // namespace

// The parser: precedence, switches, numbers, suggestions, all faults in one message.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "io/options/options.h"

using namespace triax;
using namespace triax::io;

namespace {

using Args = std::vector<std::string>;

std::string fault_of(const Args& args) {
  try {
    parse_options(args);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

Args with(const Args& first, const Args& more) {
  Args all = first;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string write_file(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

TEST(Parse, nothing_given_leaves_the_defaults) {
  const ParsedOptions parsed = parse_options({});
  EXPECT_EQ(parsed.options.control.precision, Precision::Fp32);
  EXPECT_EQ(parsed.options.control.seed, 1234u);
  EXPECT_EQ(parsed.options.model.hidden_dropout, 0.1);
  EXPECT_EQ(parsed.options.optimizer.clip_grad, 1.0);
  EXPECT_EQ(parsed.options.parallel.schedule, parallel::ScheduleKind::OneFOneB);
  EXPECT_EQ(parsed.options.control.log_interval, 10);
  EXPECT_EQ(parsed.settings.at("seed").origin, Origin::Default);
  EXPECT_FALSE(parsed.given("seed"));
}

TEST(Parse, the_last_occurrence_wins) {
  EXPECT_EQ(parse_options({"--lr", "1", "--lr=2e-3"}).options.optimizer.lr, 2e-3);
  const ParsedOptions lists = parse_options({"--data-path", "a", "b", "--data-path", "0.5", "c"});
  EXPECT_EQ(lists.options.data.data_path, (Args{"0.5", "c"}));
}

TEST(Parse, of_bf16_fp16_fp64_the_later_replaces_the_earlier) {
  const auto precision = [](const Args& args) { return parse_options(args).options.control.precision; };
  EXPECT_EQ(precision({"--bf16", "--fp64"}), Precision::Fp64);
  EXPECT_EQ(precision({"--fp64", "--fp16"}), Precision::Fp16);
  EXPECT_EQ(precision({"--fp16", "--no-fp16"}), Precision::Fp32);
  EXPECT_EQ(precision({"--fp16", "--no-bf16"}), Precision::Fp16);
  EXPECT_EQ(precision({"--model", "gpt2-124m"}), Precision::Bf16);
  EXPECT_EQ(precision({"--model", "gpt2-124m", "--no-bf16"}), Precision::Fp32);
  EXPECT_EQ(precision({"--fp64", "--model", "gpt2-124m"}), Precision::Fp64);
}

TEST(Parse, every_switch_has_no_and_equals) {
  const auto overlap = [](const std::string& arg) { return parse_options({arg}).options.parallel.overlap_grad_reduce; };
  EXPECT_FALSE(overlap("--no-overlap-grad-reduce"));
  EXPECT_FALSE(overlap("--overlap-grad-reduce=false"));
  EXPECT_TRUE(overlap("--no-overlap-grad-reduce=false"));
  EXPECT_TRUE(overlap("--overlap-grad-reduce"));
  EXPECT_NE(fault_of({"--swiglu=maybe"}).find("takes no value, or true or false"), std::string::npos);
  for (const OptionEntry& entry : option_table()) {
    if (entry.kind != ValueKind::Switch || entry.status != OptionStatus::Honoured || entry.name == "help") continue;
    EXPECT_EQ(fault_of({"--" + entry.name + "=true", "--no-" + entry.name}).find("unknown"), std::string::npos)
        << entry.name;
  }
}

TEST(Parse, numbers_are_read_wholly) {
  EXPECT_EQ(fault_of({"--num-layers", "12x"}), "--num-layers 12x: must be a whole number");
  EXPECT_EQ(fault_of({"--num-layers", "1e3"}), "--num-layers 1e3: must be a whole number");
  EXPECT_EQ(fault_of({"--num-layers", "0"}), "--num-layers 0: must be at least 1");
  EXPECT_EQ(fault_of({"--num-layers", "99999999999999999999"}),
            "--num-layers 99999999999999999999: must be a whole number");
  EXPECT_EQ(fault_of({"--num-layers", "100001"}), "--num-layers 100001: must be at most 100000");
  EXPECT_EQ(fault_of({"--seq-length", "2147483648"}), "--seq-length 2147483648: must be at most 2147483647");
  EXPECT_EQ(fault_of({"--micro-batch-size", "16777217"}), "--micro-batch-size 16777217: must be at most 16777216");
  EXPECT_EQ(fault_of({"--threads", "1025"}), "--threads 1025: must be at most 1024");
  EXPECT_EQ(fault_of({"--lr", "-1"}), "--lr -1: must be at least 0");
  EXPECT_EQ(fault_of({"--lr", "nan"}), "--lr nan: must be a number");
  EXPECT_EQ(fault_of({"--hidden-dropout", "1"}), "--hidden-dropout 1: must be in [0, 1)");
  EXPECT_EQ(parse_options({"--lr-warmup-fraction", ".001"}).options.optimizer.lr_warmup_fraction, .001);
}

TEST(Parse, abbreviations_and_junk_are_refused) {
  EXPECT_EQ(fault_of({"--hidden", "7"}), "--hidden: unknown option; did you mean --hidden-size?");
  EXPECT_EQ(fault_of({"--micro_batch_size", "7"}),
            "--micro_batch_size: unknown option; did you mean --micro-batch-size?");
  EXPECT_EQ(fault_of({"--tensor-model-paralel-size", "2"}),
            "--tensor-model-paralel-size: unknown option; did you mean --tensor-model-parallel-size?");
  EXPECT_EQ(fault_of({"--qqqqqqqqqqqq"}), "--qqqqqqqqqqqq: unknown option; --help lists all");
  EXPECT_NE(fault_of({"--lr", "1", "junk"}).find("junk: not an option"), std::string::npos);
  EXPECT_NE(fault_of({"junk", "--lr", "1"}).find("junk: not an option"), std::string::npos);
  EXPECT_NE(fault_of({"-lr", "1"}).find("-lr: options have two dashes"), std::string::npos);
  EXPECT_NE(fault_of({"--lr="}).find("needs a value"), std::string::npos);
  EXPECT_NE(fault_of({"--lr"}).find("--lr: needs a value"), std::string::npos);
}

TEST(Parse, all_faults_come_in_one_message) {
  const std::string fault = fault_of(
      {"--lr", "fast", "--num-layers", "0", "--hiden-size", "64", "--num-experts", "8", "--batch-size", "4", "x"});
  EXPECT_TRUE(fault.starts_with("6 faults in the options:\n")) << fault;
  EXPECT_NE(fault.find("--lr fast: must be a number"), std::string::npos);
  EXPECT_NE(fault.find("did you mean --hidden-size?"), std::string::npos);
  EXPECT_NE(fault.find("--num-experts 8: mixture of experts is not in this version"), std::string::npos);
  EXPECT_NE(fault.find("--batch-size 4: this name is gone; use --micro-batch-size"), std::string::npos);
}

TEST(Parse, zero_stages_by_every_name) {
  const auto stage = [](const std::vector<std::string>& words) {
    std::vector<std::string> all{"--mock-data"};
    all.insert(all.end(), words.begin(), words.end());
    return parse_options(all).options.parallel.zero_stage;
  };
  EXPECT_EQ(stage({}), 0);
  EXPECT_EQ(stage({"--zero-stage", "2"}), 2);
  EXPECT_EQ(stage({"--use-distributed-optimizer"}), 1);
  EXPECT_EQ(stage({"--use-distributed-optimizer", "--zero-stage", "3"}), 3);
  EXPECT_EQ(stage({"--use-distributed-optimizer", "--no-use-distributed-optimizer"}), 0);
  EXPECT_EQ(stage({"--use-torch-fsdp2"}), 3);
  EXPECT_EQ(stage({"--use-megatron-fsdp", "--data-parallel-sharding-strategy", "optim_grads"}), 2);
  const auto notes = [](const char* stage_given) {
    return parse_options({"--mock-data", "--zero-stage", stage_given, "--zero-prefetch", "5"}).notes;
  };
  EXPECT_TRUE(notes("3").empty());
  ASSERT_EQ(notes("2").size(), 1u);
  EXPECT_EQ(notes("2")[0], "--zero-prefetch 5: has an effect only at --zero-stage 3");
  EXPECT_NE(fault_of({"--zero-stage", "4"}).find("must be at most 3"), std::string::npos);
  EXPECT_NE(fault_of({"--zero-stage", "1", "--use-torch-fsdp2"}).find("mean ZeRO stages 1 and 3"), std::string::npos);
  EXPECT_NE(fault_of({"--zero-stage", "0", "--use-distributed-optimizer"}).find("mean ZeRO stages 1 and 0"),
            std::string::npos);
  EXPECT_NE(fault_of({"--data-parallel-sharding-strategy", "all"}).find("must be no_shard, optim"), std::string::npos);
}

TEST(Parse, buckets_in_parameters_or_in_mebibytes) {
  const auto size = [](const std::vector<std::string>& words) {
    std::vector<std::string> all{"--mock-data"};
    all.insert(all.end(), words.begin(), words.end());
    return parse_options(all).options.parallel.ddp_bucket_size;
  };
  EXPECT_EQ(size({"--ddp-bucket-size", "1000"}), 1000);
  EXPECT_EQ(size({"--bucket-cap-mb", "25"}), 25 * 1048576 / 4);
  EXPECT_EQ(size({"--bucket-cap-mb", "0.5", "--bf16"}), 131072);  // gradients are fp32
  EXPECT_EQ(size({"--bucket-cap-mb", "1", "--fp64"}), 131072);
  EXPECT_NE(fault_of({"--bucket-cap-mb", "0"}).find("must be a number of MiB"), std::string::npos);
  EXPECT_NE(fault_of({"--bucket-cap-mb", "1", "--ddp-bucket-size", "7"}).find("give one of the two"),
            std::string::npos);
}

TEST(Parse, refused_options_give_their_reason_and_their_harmless_value_passes) {
  EXPECT_NE(fault_of({"--context-parallel-size", "2"}).find("context parallelism is not in this version"),
            std::string::npos);
  EXPECT_EQ(fault_of({"--context-parallel-size", "1"}), "");
  EXPECT_EQ(fault_of({"--zero-stage", "0"}), "");
  EXPECT_NE(fault_of({"--optimizer", "muon"}).find("use adam or sgd"), std::string::npos);
  EXPECT_NE(fault_of({"--pipeline-schedule", "zb-x"}).find("must be gpipe, 1f1b, interleaved, zb-h1"),
            std::string::npos);
  EXPECT_EQ(fault_of({"--device", "cuda"}), "");
  EXPECT_NE(fault_of({"--device", "tpu"}).find("must be cpu"), std::string::npos);
  EXPECT_NE(fault_of({"--attention-backend", "unfused"}).find("use auto, flash or fused"), std::string::npos);
  EXPECT_NE(fault_of({"--no-bias-gelu-fusion"}).find("erf form"), std::string::npos);
  EXPECT_EQ(fault_of({"--no-bias-gelu-fusion", "--swiglu"}), "");
}

TEST(Parse, inert_options_are_listed_once) {
  const ParsedOptions parsed =
      parse_options({"--use-mcore-models", "--transformer-impl", "transformer_engine", "--wandb-project", "x",
                     "--use-mcore-models", "--no-gradient-accumulation-fusion"});
  EXPECT_EQ(parsed.options.inert,
            (Args{"use-mcore-models", "transformer-impl", "wandb-project", "no-gradient-accumulation-fusion"}));
}

TEST(Parse, a_config_file_is_overridden_by_the_command_line) {
  const std::string path = write_file("parse.cfg",
                                      "# a comment\nlr = 1e-3   # rate\nbf16 = true\nno-log-throughput = true\n"
                                      "data-path = 0.3 a 0.7 b\nrun-dir = with blank\nsplit=98,1,1\n");
  const ParsedOptions parsed = parse_options({"--lr", "5", "--config", path, "--no-bf16"});
  EXPECT_EQ(parsed.options.optimizer.lr, 5);
  EXPECT_EQ(parsed.options.control.precision, Precision::Fp32);
  EXPECT_FALSE(parsed.options.control.log_throughput);
  EXPECT_EQ(parsed.options.data.data_path, (Args{"0.3", "a", "0.7", "b"}));
  EXPECT_EQ(parsed.options.control.run_dir, "with blank");
  EXPECT_EQ(parsed.settings.at("split").origin, Origin::File);
  EXPECT_EQ(parsed.settings.at("split").where, path + ":7");
  EXPECT_EQ(parsed.settings.at("lr").origin, Origin::CommandLine);
}

TEST(Parse, a_byte_order_mark_before_a_config_file_is_skipped) {
  const std::string path = write_file("mark.cfg", "\xEF\xBB\xBFlr = 3\n");
  EXPECT_EQ(parse_options({"--config", path}).options.optimizer.lr, 3);
}

TEST(Parse, faults_of_a_config_file_name_its_lines) {
  const std::string path = write_file("bad.cfg", "lr 3\nhidden_sizes = 3\nnum-layers = two\nlr =\nconfig = x\n");
  const std::string fault = fault_of({"--config", path});
  EXPECT_TRUE(fault.starts_with("5 faults")) << fault;
  EXPECT_NE(fault.find(path + ":1: 'lr 3' is not of the form key = value"), std::string::npos);
  EXPECT_NE(fault.find(path + ":2: --hidden_sizes: unknown option; did you mean --hidden-size?"), std::string::npos);
  EXPECT_NE(fault.find(path + ":3: num-layers = two: must be a whole number"), std::string::npos);
  EXPECT_NE(fault_of({"--config", "/no/such.cfg"}).find("/no/such.cfg: cannot be read"), std::string::npos);
}

TEST(Parse, presets_and_what_overrides_them) {
  const ParsedOptions parsed = parse_options({"--num-layers", "8", "--model", "llama2-70b"});
  EXPECT_EQ(parsed.options.model.num_layers, 8);
  EXPECT_EQ(parsed.options.model.num_query_groups, 8);
  EXPECT_EQ(parsed.options.model.name, "llama2-70b-custom");
  EXPECT_EQ(parsed.settings.at("hidden-size").origin, Origin::Preset);
  EXPECT_EQ(parsed.settings.at("hidden-size").where, "preset llama2-70b");
  EXPECT_EQ(parse_options({"--model", "gpt2-124m", "--seq-length", "256"}).options.model.max_position_embeddings, 1024);
  EXPECT_EQ(parse_options({"--model", "t1", "--no-group-query-attention"}).options.model.num_query_groups, 4);
  EXPECT_NE(fault_of({"--model", "llama3-80b"}).find("did you mean llama3-8b?"), std::string::npos);
  const std::string path = write_file("mine.cfg", "num-layers = 3\nhidden-size = 48\nnum-attention-heads = 4\n");
  const ParsedOptions file = parse_options({"--hidden-size", "64", "--model", path});
  EXPECT_EQ(file.options.model.name, "mine");
  EXPECT_EQ(file.options.model.num_layers, 3);
  EXPECT_EQ(file.options.model.hidden_size, 64);
  EXPECT_EQ(file.options.model.kv_channels, 16);
}

const Args kSmall = {"--num-layers", "4", "--hidden-size", "96", "--num-attention-heads", "6", "--seq-length", "32"};

TEST(Derive, widths_follow_megatron) {
  const model::ModelConfig m = parse_options(kSmall).options.model;
  EXPECT_EQ(m.ffn_hidden_size, 384);
  EXPECT_EQ(m.kv_channels, 16);
  EXPECT_EQ(m.num_query_groups, 6);
  EXPECT_EQ(m.max_position_embeddings, 32);
  EXPECT_TRUE(m.add_qkv_bias);
  EXPECT_EQ(parse_options(with(kSmall, {"--swiglu"})).options.model.ffn_hidden_size, 256);
  EXPECT_FALSE(parse_options(with(kSmall, {"--disable-bias-linear"})).options.model.add_qkv_bias);
  EXPECT_TRUE(parse_options(with(kSmall, {"--add-qkv-bias", "--disable-bias-linear"})).options.model.add_qkv_bias);
}

TEST(Derive, query_groups) {
  EXPECT_EQ(parse_options(with(kSmall, {"--group-query-attention", "--num-query-groups", "2"}))
                .options.model.num_query_groups,
            2);
  EXPECT_EQ(parse_options(with(kSmall, {"--group-query-attention"})).options.model.num_query_groups, 1);
  EXPECT_NE(fault_of(with(kSmall, {"--num-query-groups", "2"})).find("needs --group-query-attention"),
            std::string::npos);
}

TEST(Derive, virtual_stages_choose_the_schedule) {
  const Args pipeline = with(kSmall, {"--pipeline-model-parallel-size", "2"});
  const ParallelOptions p =
      parse_options(with(pipeline, {"--num-layers-per-virtual-pipeline-stage", "1"})).options.parallel;
  EXPECT_EQ(p.chunks, 2);
  EXPECT_EQ(p.schedule, parallel::ScheduleKind::Interleaved);
  EXPECT_EQ(parse_options(pipeline).options.parallel.schedule, parallel::ScheduleKind::OneFOneB);
  const ParallelOptions layout =
      parse_options(with(pipeline, {"--pipeline-model-parallel-layout", "Et|t|t|tL"})).options.parallel;
  EXPECT_EQ(layout.chunks, 2);
  EXPECT_EQ(layout.layer_list, (std::vector<int64_t>{1, 1, 1, 1}));
  EXPECT_NE(fault_of(with(pipeline, {"--num-layers-per-virtual-pipeline-stage", "3"})).find("must divide the 2 layers"),
            std::string::npos);
  EXPECT_NE(fault_of(with(pipeline, {"--pipeline-model-parallel-layout", "2,1,1"})).find("3 stages are not a multiple"),
            std::string::npos);
  EXPECT_NE(fault_of(with(pipeline, {"--num-layers-per-virtual-pipeline-stage", "1",
                                     "--num-virtual-stages-per-pipeline-rank", "3"}))
                .find("means 2; give one of the two"),
            std::string::npos);
}

TEST(Derive, recompute_rules) {
  EXPECT_EQ(parse_options({"--recompute-activations"}).options.parallel.recompute.granularity,
            parallel::RecomputeGranularity::Selective);
  EXPECT_NE(fault_of({"--recompute-granularity", "full"}).find("needs --recompute-method uniform or block"),
            std::string::npos);
  EXPECT_NE(fault_of({"--recompute-granularity", "selective", "--recompute-method", "block"})
                .find("only --recompute-granularity full"),
            std::string::npos);
  EXPECT_EQ(fault_of({"--recompute-granularity", "full", "--recompute-method", "block", "--recompute-num-layers", "2"}),
            "");
}

TEST(Derive, sequence_parallel_at_tp_1_is_accepted_and_said) {
  const ParsedOptions one = parse_options({"--sequence-parallel"});
  EXPECT_FALSE(one.options.parallel.sequence_parallel);
  ASSERT_EQ(one.notes.size(), 1u);
  EXPECT_TRUE(
      parse_options({"--sequence-parallel", "--tensor-model-parallel-size", "2"}).options.parallel.sequence_parallel);
}

TEST(Derive, no_tensorboard_wins_over_its_directory) {
  EXPECT_EQ(parse_options({"--tensorboard-dir", "d", "--no-tensorboard"}).options.control.tensorboard_dir, "");
  EXPECT_EQ(
      parse_options({"--no-tensorboard", "--tensorboard-dir", "d", "--tensorboard"}).options.control.tensorboard_dir,
      "d");
}

TEST(Derive, tokenizer_files_are_not_ignored) {
  const ParsedOptions both = parse_options({"--vocab-file", "v", "--merge-file", "m"});
  EXPECT_EQ(both.options.data.tokenizer_type, "GPT2BPETokenizer");
  EXPECT_EQ(both.notes.size(), 1u);
  EXPECT_EQ(fault_of({"--vocab-file", "v"}),
            "--vocab-file v: has no effect without a type; add --tokenizer-type GPT2BPETokenizer, or leave it out");
  EXPECT_NE(fault_of({"--tokenizer-model", "t"}).find("--tokenizer-model t: has no effect without a type"),
            std::string::npos);
  EXPECT_EQ(parse_options({"--tokenizer-model", "t", "--mock-data"}).notes,
            Args{"--tokenizer-model t has no effect with --mock-data"});
}

TEST(Layout, megatrons_strings_and_counts) {
  using Counts = std::vector<int64_t>;
  EXPECT_EQ(parse_layout("E|(t|)*3,t|tL"), (Counts{0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(parse_layout("Ett|(tt|)*2ttL"), (Counts{2, 2, 2, 2}));
  EXPECT_EQ(parse_layout("Et*3|((t|)*2t*2|)*2L"), (Counts{3, 1, 1, 2, 1, 1, 2, 0}));
  EXPECT_EQ(parse_layout("8,8,7,7"), (Counts{8, 8, 7, 7}));
  for (const char* bad :
       {"Et|mL", "Et|t", "tt|tL", "E(t|L", "Et)L", "Et*L", "Et*0L", "EtxL", "1,,2", "", "E(t*99999)*99999L"}) {
    EXPECT_THROW(parse_layout(bad), ConfigError) << bad;
  }
}

TEST(Parse, a_subcommand_adds_its_options) {
  std::string prompt;
  OptionEntry entry;
  entry.name = "prompt";
  entry.set = [&](RunOptions&, const Args& values) {
    prompt = values[0];
    return std::string();
  };
  const ParsedOptions parsed = parse_options({"--prompt", "Once upon", "--seed", "7"}, {entry});
  EXPECT_EQ(prompt, "Once upon");
  EXPECT_EQ(parsed.options.control.seed, 7u);
  EXPECT_TRUE(parsed.given("prompt"));
}

}  // namespace

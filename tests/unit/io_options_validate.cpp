// Every fault of validation, with the legal value it names; and what resolve() derives.
#include <gtest/gtest.h>

#include "base/error.h"
#include "io/options/options.h"
#include "io/options/validate.h"
#include "io/options/values.h"

using namespace triax;
using namespace triax::io;

namespace {

const std::string kBase =
    "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --vocab-size 101 --mock-data "
    "--micro-batch-size 1 --global-batch-size 8 --train-iters 20 --lr 1e-3 ";

RunOptions options_of(const std::string& words) { return parse_options(split_blanks(kBase + words)).options; }

struct Case {
  const char* words;
  int world;
  const char* fault;
};

// One fault each, word by word: the option, its value, the rule, the nearest legal values.
const Case kCases[] = {
    {"--max-staleness 2", 2,
     "--max-staleness 2: an all-reduce leaves no update out; use --grad-sync parameter-server, or 0"},
    {"--grad-sync parameter-server --fp16", 2,
     "--grad-sync parameter-server: the loss scale of fp16 must be known before the next step; use --bf16 or fp32"},
    {"--grad-sync parameter-server --clock virtual", 2,
     "--grad-sync parameter-server: has no virtual time; use --clock real"},
    {"--grad-sync parameter-server --max-staleness 1 --check replicas", 2,
     "--check replicas: replicas differ under --max-staleness; use --max-staleness 0, or no --check"},
    {"--collective-algorithm tp=library --fixed-reduction-order", 2,
     "--fixed-reduction-order true: the library of --collective-algorithm tp=library sums in an order of its own; use "
     "ring, halving-doubling, tree, double-tree, hierarchical, direct or default there"},
    {"--zero-stage 2 --zero-reshard-after step", 2,
     "--zero-reshard-after step: weights are whole all the time at --zero-stage 2; use --zero-stage 3, or leave it "
     "out"},
    {"--fake-nodes 3", 2, "--fake-nodes 3: each needs a rank; use at most 2"},
    {"--pipeline-model-parallel-size 3", 8,
     "--tensor-model-parallel-size 1 x --pipeline-model-parallel-size 3 = 3 ranks per replica: must divide the 8 ranks "
     "of the "
     "run; use 6 or 9 ranks, or a product of 2 or 4"},
    {"--tensor-model-parallel-size 3 --hidden-size 64", 24,
     "--tensor-model-parallel-size 3: must divide --num-attention-heads 4, must divide --hidden-size 64, must divide "
     "--ffn-hidden-size 256, must divide or be a multiple of --num-query-groups 4; use 2 or 4"},
    {"--tensor-model-parallel-size 8 --hidden-size 64 --num-attention-heads 4 --kv-channels 16", 8,
     "--tensor-model-parallel-size 8: must divide --num-attention-heads 4; use 4"},
    {"--tensor-model-parallel-size 4 --hidden-size 66 --num-attention-heads 4 --kv-channels 16 --ffn-hidden-size 264",
     4, "--tensor-model-parallel-size 4: must divide --hidden-size 66; use 2"},
    {"--tensor-model-parallel-size 4 --ffn-hidden-size 250", 4,
     "--tensor-model-parallel-size 4: must divide --ffn-hidden-size 250; use 2"},
    {"--tensor-model-parallel-size 4 --sequence-parallel --seq-length 30", 4,
     "--tensor-model-parallel-size 4: must divide --seq-length 30; use 2"},
    {"--num-attention-heads 12 --hidden-size 96 --group-query-attention --num-query-groups 6 "
     "--tensor-model-parallel-size 4",
     4, "--tensor-model-parallel-size 4: must divide or be a multiple of --num-query-groups 6; use 2"},
    {"--num-attention-heads 12 --hidden-size 96 --group-query-attention --num-query-groups 5", 1,
     "--num-query-groups 5: must divide --num-attention-heads 12; use 4 or 6"},
    {"--num-attention-heads 5", 1,
     "--num-attention-heads 5: must divide --hidden-size 64; use 4 or 8, or name --kv-channels"},
    {"--position-embedding-type rope --kv-channels 15", 1,
     "--kv-channels 15: rotary positions turn pairs of channels; use an even number, 14 or 16"},
    {"--position-embedding-type rope --rotary-percent 0.2", 1,
     "--rotary-percent 0.2: rotates 3 of 16 channels, which must be an even number; use 0.125"},
    {"--max-position-embeddings 16", 1,
     "--seq-length 32: is longer than the learned positions, --max-position-embeddings 16; use at most 16, or more "
     "positions"},
    {"--swiglu --hidden-size 16", 1,
     "--hidden-size 16: gives --swiglu a width of int(4h*2/3/64)*64 = 0; use --ffn-hidden-size with a width of its "
     "own"},
    {"--global-batch-size 6", 4,
     "--global-batch-size 6: must be a multiple of micro-batch 1 x data-parallel 4 = 4; use 4 or 8"},
    {"--micro-batch-size 4", 4,
     "--global-batch-size 8: must be a multiple of micro-batch 4 x data-parallel 4 = 16; use 16"},
    {"--num-virtual-stages-per-pipeline-rank 2", 1,
     "--num-virtual-stages-per-pipeline-rank 2: virtual stages need a pipeline; use --pipeline-model-parallel-size of "
     "at "
     "least 2, or 1 virtual stage"},
    {"--pipeline-model-parallel-size 2 --pipeline-schedule interleaved", 2,
     "--pipeline-schedule interleaved: needs at least 2 virtual stages per rank; use "
     "--num-virtual-stages-per-pipeline-rank 2, "
     "or 1f1b"},
    {"--pipeline-model-parallel-size 2 --pipeline-schedule gpipe --num-virtual-stages-per-pipeline-rank 2", 2,
     "--pipeline-schedule gpipe: has one chunk per rank, not 2; use interleaved"},
    {"--recompute-granularity full --recompute-method uniform --recompute-num-layers 5 --pipeline-model-parallel-size "
     "2",
     2, "--recompute-num-layers 5: must be from 1 to the 4 layers of the largest stage; use 4"},
    {"--min-lr 2e-3", 1, "--min-lr 0.002: is above --lr 0.001; use at most 0.001"},
    {"--lr-warmup-init 1", 1, "--lr-warmup-init 1: is above --lr 0.001; use at most 0.001"},
    {"--lr-scaling sqrt", 1,
     "--lr-base-batch-size is not given: --lr-scaling needs the global batch for which --lr was chosen"},
    {"--lr-base-batch-size 8", 1,
     "--lr-base-batch-size 8: has no effect alone; use --lr-scaling linear or sqrt with it"},
    {"--lr-decay-samples 100", 1,
     "--lr-decay-samples 100: iterations and samples do not mix: the run is given by --train-iters; use "
     "--lr-decay-iters"},
    {"--lr-warmup-samples 100", 1,
     "--lr-warmup-samples 100: iterations and samples do not mix: the run is given by --train-iters; use "
     "--lr-warmup-iters"},
    {"--train-samples 400", 1, "--train-iters 20: excludes --train-samples 400; use one of the two"},
    {"--lr-warmup-iters 20", 1, "--lr-warmup-iters 20: must be shorter than the decay of 20; use at most 19"},
    {"--lr-warmup-iters 2 --lr-warmup-fraction 0.1", 1,
     "--lr-warmup-fraction 0.1: excludes --lr-warmup-iters 2; use one of the two"},
    {"--lr-decay-style WSD", 1, "--lr-wsd-decay-iters is not given: the length of WSD's last phase"},
    {"--lr-decay-style WSD --lr-wsd-decay-iters 21", 1,
     "--lr-wsd-decay-iters 21: is longer than the decay of 20; use at most 20"},
    {"--loss-scale 128", 1, "--loss-scale 128: only fp16 gradients are scaled; use --fp16, or leave it out"},
    {"--fp16 --initial-loss-scale 2 --min-loss-scale 4", 1,
     "--initial-loss-scale 2: is below --min-loss-scale 4; use 4 or more"},
    {"--no-mock-data", 1,
     "--data-path is not given: prefixes of .bin/.idx data made by `triax data build`; or --mock-data for made-up "
     "tokens"},
    {"--no-mock-data --data-path a --valid-data-path b --train-data-path c", 1,
     "--data-path a: excludes --train-data-path, --valid-data-path and --test-data-path; use one or the others"},
    {"--no-mock-data --valid-data-path b", 1, "--train-data-path is not given: the other splits are named one by one"},
    {"--data-path a", 1, "--mock-data excludes --data-path and its kind; use one of the two"},
    {"--tokenizer-type Llama2Tokenizer", 1,
     "--tokenizer-type Llama2Tokenizer: needs --tokenizer-model; use --tokenizer-model FILE"},
    {"--skip-train", 1, "--load is not given: --skip-train evaluates saved weights"},
    {"--skip-train --load x --eval-iters 0", 1, "--eval-iters 0: --skip-train would do nothing; use 1 or more"},
};

TEST(Validate, each_fault_names_option_value_rule_and_legal_value) {
  for (const Case& one : kCases) {
    EXPECT_EQ(faults(options_of(one.words), one.world), std::vector<std::string>{one.fault}) << one.words;
  }
}

TEST(Validate, products_beyond_64_bits_are_faults) {
  const auto first = [](const std::string& words) { return faults(options_of(words), 4).at(0); };
  EXPECT_TRUE(first("--hidden-size 2147483644").ends_with("parameters are more than 1.8e+16; use smaller values"));
  EXPECT_TRUE(first("--micro-batch-size 16777216 --seq-length 2147483647").starts_with("--micro-batch-size, --seq-"));
  EXPECT_TRUE(first("--global-batch-size 1099511627776").find("2.75e+11 micro-batches") != std::string::npos);
  EXPECT_TRUE(first("--train-iters 1099511627776 --global-batch-size 4194304").find("tokens of the run") !=
              std::string::npos);
  EXPECT_TRUE(first("--pipeline-model-parallel-size 1048576 --num-virtual-stages-per-pipeline-rank 100000")
                  .find("stages are more than") != std::string::npos);
  EXPECT_FALSE(faults(options_of("--tensor-model-parallel-size 1048576"), 4).empty());
}

TEST(Validate, the_base_has_no_fault) {
  for (int world : {1, 2, 4, 8}) EXPECT_EQ(faults(options_of(""), world), std::vector<std::string>{}) << world;
}

TEST(Validate, what_was_not_given_is_named) {
  const std::vector<std::string> all = faults(RunOptions{}, 1);
  const char* const expected[] = {"--num-layers", "--hidden-size",      "--num-attention-heads",
                                  "--seq-length", "--micro-batch-size", "--train-iters",
                                  "--lr",         "--data-path"};
  ASSERT_EQ(all.size(), std::size(expected));
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_TRUE(all[i].starts_with(std::string(expected[i]) + " is not given")) << all[i];
}

TEST(Validate, plan_needs_neither_data_nor_a_learning_rate) {
  const RunOptions o = parse_options({"--model", "t0", "--micro-batch-size", "1"}).options;
  EXPECT_EQ(faults(o, 2, Purpose::Plan), std::vector<std::string>{});
  EXPECT_EQ(faults(o, 2).size(), 3u);
}

TEST(Validate, layer_maps_and_schedules_are_checked_by_their_owners) {
  const auto one_fault = [](const std::string& words, int world) {
    const std::vector<std::string> all = faults(options_of(words), world);
    EXPECT_EQ(all.size(), 1u) << words;
    return all.empty() ? std::string() : all[0];
  };
  EXPECT_NE(one_fault("--num-layers 3 --pipeline-model-parallel-size 4", 4).find("--num-layers 3 is less than the 4"),
            std::string::npos);
  EXPECT_NE(one_fault("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 4,5", 2).find("4,4"),
            std::string::npos);
  EXPECT_NE(one_fault("--decoder-first-pipeline-num-layers 3", 1).find("at least 2"), std::string::npos);
  EXPECT_NE(
      one_fault("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --global-batch-size 3", 2)
          .find("micro-batches"),
      std::string::npos);
}

TEST(Resolve, all_faults_come_in_one_message) {
  RunOptions o = options_of("--tensor-model-parallel-size 8 --min-lr 1 --global-batch-size 9");
  try {
    resolve(o, 16);
    FAIL() << "must throw";
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("3 faults in the run:\n  --tensor-model-parallel-size 8:"))
        << error.what();
  }
}

TEST(Resolve, derives_what_follows_and_is_idempotent) {
  RunOptions o = options_of("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2");
  resolve(o, 8);
  EXPECT_EQ(o.parallel.grid.data, 2);
  EXPECT_EQ(o.parallel.grid.world(), 8);
  EXPECT_EQ(o.batch.num_micro_batches, 4);
  EXPECT_EQ(o.optimizer.lr_decay_iters, 20);
  EXPECT_EQ(o.parallel.ddp_bucket_size, 40000000);
  EXPECT_EQ(layer_map_of(o).layers(1, 0), (parallel::LayerRange{4, 8}));
  const std::string once = resolved_cfg(o);
  resolve(o, 8);
  EXPECT_EQ(resolved_cfg(o), once);
}

TEST(Resolve, batch_and_length_from_samples) {
  RunOptions o =
      parse_options(split_blanks("--model t1 --micro-batch-size 3 --train-samples 100 --lr 1 --mock-data")).options;
  resolve(o, 4);
  EXPECT_EQ(o.batch.global_batch_size, 12);
  EXPECT_EQ(o.batch.train_iters, 8);
  EXPECT_EQ(o.optimizer.lr_decay_samples, 100);
  EXPECT_EQ(o.optimizer.lr_decay_iters, 0);
  EXPECT_EQ(faults(o, 4), std::vector<std::string>{});
}

TEST(Resolve, uneven_splits_are_legal) {
  RunOptions o = options_of("--num-layers 30 --pipeline-model-parallel-size 4");
  resolve(o, 4);
  const parallel::LayerMap map = layer_map_of(o);
  EXPECT_EQ(map.layers(0, 0).size(), 8);
  EXPECT_EQ(map.layers(3, 0).size(), 7);
}

TEST(Resolve, kv_heads_may_be_fewer_than_tensor_ranks) {
  RunOptions o = options_of("--group-query-attention --num-query-groups 2 --tensor-model-parallel-size 4");
  EXPECT_EQ(faults(o, 4), std::vector<std::string>{});
}

}  // namespace

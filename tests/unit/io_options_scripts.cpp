// Arguments of Megatron-LM's published example scripts, pasted.
#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "io/options/options.h"
#include "io/options/validate.h"
#include "io/options/values.h"

using namespace triax;
using namespace triax::io;

namespace {

std::string without(std::string text, const std::string& part) {
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.erase(at, part.size());
}

std::string fault_of(const std::string& words) {
  try {
    parse_options(split_blanks(words));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

// examples/gpt3/train_gpt3_175b_distributed.sh: GPT_MODEL_ARGS to EVAL_AND_LOGGING_ARGS as the shell expands them.
const std::string kGpt3 =
    "--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 "
    "--attention-backend auto "
    "--micro-batch-size 1 --global-batch-size 1536 --rampup-batch-size 16 16 5859375 --train-iters 500000 "
    "--weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006 --clip-grad 1.0 --fp16 --lr 6.0e-5 "
    "--lr-decay-style cosine --min-lr 6.0e-6 --lr-warmup-fraction .001 --lr-decay-iters 430000 "
    "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 "
    "--data-path /data/pile_text_document --vocab-file /data/gpt2-vocab.json --merge-file /data/gpt2-merges.txt "
    "--split 949,50,1 "
    "--log-interval 100 --save-interval 10000 --eval-interval 1000 --save /ckpt --load /ckpt --eval-iters 10 "
    "--tensorboard-dir /tb ";

// examples/llama/train_llama3_8b_h100_fp8.sh with mock data and fp8, likewise.
const std::string kLlama3 =
    "--use-mcore-models --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192 --max-position-embeddings 8192 "
    "--position-embedding-type rope --rotary-base 1000000 --rotary-percent 1.0 --attention-dropout 0.0 "
    "--hidden-dropout 0.0 --swiglu --init-method-std 0.0134 --attention-backend fused --apply-layernorm-1p "
    "--untie-embeddings-and-output-weights --disable-bias-linear "
    "--micro-batch-size 1 --global-batch-size 128 --train-samples 1953125000 --lr-decay-samples 1949218748 "
    "--lr-warmup-samples 3906252 --lr 0.00015 --min-lr 0.00001 --decoupled-lr 5.0e-4 --decoupled-min-lr 4.5e-5 "
    "--lr-decay-style cosine --clip-grad 1.0 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --bf16 "
    "--grad-reduce-in-bf16 --cross-entropy-loss-fusion --calculate-per-token-loss --manual-gc "
    "--empty-unused-memory-level 1 --exit-duration-in-mins 235 "
    "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "
    "--fp8-format hybrid --fp8-amax-history-len 1024 --fp8-amax-compute-algo max --fp8-param-gather "
    "--tensor-model-parallel-size 1 --context-parallel-size 1 --sequence-parallel "
    "--mock-data --tokenizer-type NullTokenizer --vocab-size 128256 --data-cache-path /cache --tiktoken-pattern v2 "
    "--split '99,1,0' --no-create-attention-mask-in-dataloader --no-mmap-bin-files --num-workers 1 "
    "--log-interval 1 --eval-iters 32 --eval-interval 100 --save-interval 1000 --log-throughput --profile "
    "--profile-step-start 4 --profile-step-end 6 --ckpt-format torch_dist --distributed-timeout-minutes 60 "
    "--save /ckpt --load /ckpt --tensorboard-dir /tb ";

TEST(Scripts, gpt3_175b_stops_only_at_the_batch_ramp) {
  EXPECT_EQ(fault_of(kGpt3),
            "--rampup-batch-size 16 16 5859375: batch-size ramp-up is not in this version; leave it out for a constant "
            "batch");
}

TEST(Scripts, gpt3_175b_parses_as_written) {
  ParsedOptions parsed = parse_options(split_blanks(without(kGpt3, "--rampup-batch-size 16 16 5859375 ")));
  RunOptions& o = parsed.options;
  EXPECT_EQ(o.inert, std::vector<std::string>{"attention-backend"});
  EXPECT_EQ(o.control.precision, Precision::Fp16);
  EXPECT_EQ(o.optimizer.lr_warmup_fraction, .001);
  EXPECT_EQ(o.optimizer.lr_decay_style, LrDecayStyle::Cosine);
  EXPECT_EQ(o.data.data_path, std::vector<std::string>{"/data/pile_text_document"});
  resolve(o, 1024);
  EXPECT_EQ(o.parallel.grid.data, 8);
  EXPECT_EQ(o.batch.num_micro_batches, 192);
  EXPECT_EQ(o.optimizer.lr_decay_iters, 430000);
  EXPECT_EQ(o.model.ffn_hidden_size, 49152);
  EXPECT_EQ(o.model.kv_channels, 128);
  EXPECT_EQ(o.model.init_method_std, 0.006);
  EXPECT_EQ(o.model.hidden_dropout, 0.1);
  EXPECT_TRUE(o.model.tie_embeddings);
  EXPECT_EQ(layer_map_of(o).layers(15, 0), (parallel::LayerRange{90, 96}));
}

TEST(Scripts, llama3_8b_fp8_names_all_that_would_change_the_result) {
  const std::string fault = fault_of(kLlama3);
  EXPECT_TRUE(fault.starts_with("5 faults in the options:")) << fault;
  for (const char* name : {"--apply-layernorm-1p:", "--decoupled-lr 5.0e-4:", "--decoupled-min-lr 4.5e-5:",
                           "--grad-reduce-in-bf16:", "--fp8-param-gather:"}) {
    EXPECT_NE(fault.find(name), std::string::npos) << name;
  }
}

TEST(Scripts, llama3_8b_in_bf16_parses_as_written) {
  std::string words = kLlama3;
  for (const char* part :
       {"--apply-layernorm-1p ", "--decoupled-lr 5.0e-4 --decoupled-min-lr 4.5e-5 ", "--grad-reduce-in-bf16 ",
        "--fp8-format hybrid --fp8-amax-history-len 1024 --fp8-amax-compute-algo max --fp8-param-gather "}) {
    words = without(words, part);
  }
  ParsedOptions parsed = parse_options(split_blanks(words));
  RunOptions& o = parsed.options;
  EXPECT_EQ(o.inert.size(), 10u);  // --overlap-param-gather and --profile are honoured
  EXPECT_EQ(o.parallel.zero_stage, 1);
  EXPECT_EQ(parsed.notes.size(), 1u);  // sequence parallelism at TP 1
  resolve(o, 8);
  EXPECT_EQ(o.parallel.grid.data, 8);
  EXPECT_EQ(o.batch.num_micro_batches, 16);
  EXPECT_EQ(o.batch.train_iters, 1953125000 / 128);
  EXPECT_EQ(o.optimizer.lr_warmup_samples, 3906252);
  EXPECT_EQ(o.model.num_query_groups, 8);
  EXPECT_FALSE(o.model.add_bias_linear);
  EXPECT_FALSE(o.model.add_qkv_bias);
  EXPECT_FALSE(o.model.tie_embeddings);
  EXPECT_EQ(o.model.norm, model::NormType::LayerNorm);
  EXPECT_EQ(o.model.rotary_base, 1e6);
  EXPECT_EQ(o.model.vocab_size, 128256);
  EXPECT_EQ(o.data.split, "99,1,0");
  EXPECT_EQ(o.control.exit_duration_min, 235);
  EXPECT_EQ(o.control.distributed_timeout_min, 60);
}

// flags.md 4.1: what 266 training configurations of Megatron-LM use. Each is known: honoured, inert or refused.
TEST(Scripts, the_most_used_names_are_known) {
  const std::string names =
      "num-layers hidden-size num-attention-heads seq-length max-position-embeddings micro-batch-size "
      "global-batch-size "
      "train-iters lr min-lr lr-decay-style lr-decay-iters lr-warmup-fraction weight-decay clip-grad bf16 "
      "tensor-model-parallel-size pipeline-model-parallel-size data-path split data-cache-path vocab-file save load "
      "save-interval eval-interval eval-iters log-interval timing-log-level tensorboard-dir log-timers-to-tensorboard "
      "log-memory-to-tensorboard log-num-zeros-in-grad log-params-norm log-validation-ppl-to-tensorboard ckpt-format "
      "transformer-impl distributed-backend merge-file async-save deterministic-mode dist-ckpt-strictness "
      "attention-softmax-in-fp32 attention-backend sequence-parallel use-distributed-optimizer "
      "no-gradient-accumulation-fusion disable-bias-linear num-experts moe-router-topk moe-router-load-balancing-type "
      "attention-dropout hidden-dropout overlap-grad-reduce overlap-param-gather expert-model-parallel-size "
      "untie-embeddings-and-output-weights position-embedding-type context-parallel-size ffn-hidden-size "
      "init-method-std "
      "kv-channels swiglu normalization adam-beta1 adam-beta2 tokenizer-type group-query-attention num-query-groups "
      "exit-interval num-layers-per-virtual-pipeline-stage log-throughput rotary-percent lr-warmup-samples manual-gc "
      "distributed-timeout-minutes num-workers calculate-per-token-loss recompute-activations rotary-base "
      "tokenizer-model "
      "make-vocab-size-divisible-by exit-duration-in-mins train-samples lr-decay-samples wandb-project wandb-exp-name "
      "use-flash-attn fp16 seed mock-data no-mmap-bin-files norm-epsilon optimizer adam-eps";
  const std::vector<std::string> all = split_blanks(names);
  EXPECT_GE(all.size(), 95u);
  for (const std::string& name : all) EXPECT_EQ(fault_of("--" + name).find("unknown"), std::string::npos) << name;
}

}  // namespace

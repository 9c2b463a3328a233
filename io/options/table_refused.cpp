// Megatron-LM's options that would change the result or the measurement and cannot be done here, and old names.
#include "io/options/entries.h"

namespace triax::io {
namespace {

struct RefusedRow {
  const char* name;
  ValueKind kind;
  OptionGroup group;
  const char* reason;
  std::vector<std::string> allowed = {};  ///< values that ask for nothing
};

std::vector<RefusedRow> model_rows() {
  using enum ValueKind;
  using enum OptionGroup;
  const char* const kMoe = "mixture of experts is not in this version; leave it out for a dense model";
  const char* const kMla = "multi-latent attention is not in this version; leave it out";
  const char* const kMtp = "multi-token prediction is not in this version; leave it out";
  return {
      {"num-experts", Value, Model, kMoe},
      {"moe-router-topk", Value, Model, kMoe},
      {"moe-router-load-balancing-type", List, Model, kMoe},
      {"moe-aux-loss-coeff", List, Model, kMoe},
      {"moe-grouped-gemm", Switch, Model, kMoe},
      {"moe-token-dispatcher-type", Value, Model, kMoe},
      {"moe-ffn-hidden-size", Value, Model, kMoe},
      {"moe-layer-freq", Value, Model, kMoe},
      {"moe-shared-expert-intermediate-size", Value, Model, kMoe},
      {"moe-z-loss-coeff", Value, Model, kMoe},
      {"expert-model-parallel-size", Value, Parallel, kMoe, {"1"}},
      {"expert-tensor-parallel-size", Value, Parallel, kMoe, {"1"}},
      {"multi-latent-attention", Switch, Model, kMla},
      {"q-lora-rank", Value, Model, kMla},
      {"kv-lora-rank", Value, Model, kMla},
      {"mtp-num-layers", Value, Model, kMtp, {"0"}},
      {"qk-layernorm", Switch, Model, "normalization of queries and keys is not in this version; leave it out"},
      {"window-size", Value, Model, "sliding-window attention is not in this version; leave it out"},
      {"squared-relu", Switch, Model, "the activation is GELU or --swiglu"},
      {"quick-geglu", Switch, Model, "the activation is GELU or --swiglu"},
      {"apply-layernorm-1p", Switch, Model, "norm weights are stored as they are, not minus one; leave it out"},
      {"apply-residual-connection-post-layernorm", Switch, Model, "layers are pre-norm only; leave it out"},
      {"use-rope-scaling", Switch, Model, "scaled rotary frequencies are not in this version; leave it out"},
      {"rotary-seq-len-interpolation-factor",
       Value,
       Model,
       "rotary interpolation is not in this version; leave it out",
       {"1"}},
      {"rotary-interleaved", Switch, Model, "rotary halves are not interleaved, as Megatron's default; leave it out"},
      {"init-method-xavier-uniform", Switch, Model, "initial weights are normal; leave it out"},
      {"embedding-init-method-std", Value, Model, "one standard deviation for all weights: use --init-method-std"},
      {"hybrid-override-pattern", Value, Model, "hybrid models are not in this version"},
      {"untie-position-embeddings", Switch, Model, "positions are learned, rope or none"},
      {"use-legacy-models", Switch, Model, "there is one model implementation; leave it out"},
      {"heterogeneous-layers-config-path", Value, Model, "all layers have one shape; leave it out"},
  };
}

std::vector<RefusedRow> parallel_rows() {
  using enum ValueKind;
  using enum OptionGroup;
  const char* const kCp = "context parallelism is not in this version; leave it out";
  const char* const kOverlap = "overlap inside one matrix product is not in this version; leave it out";
  return {
      {"optimizer-cpu-offload", Switch, Parallel, "offload is not in this version; leave it out"},
      {"cpu-offloading-num-layers", Value, Parallel, "offload is not in this version; leave it out", {"0"}},
      {"cp-comm-type", List, Parallel, kCp},
      {"hierarchical-context-parallel-sizes", List, Parallel, kCp},
      {"tp-comm-overlap", Switch, Parallel, kOverlap},
      {"delay-wgrad-compute", Switch, Parallel,
       "zb-h1, zb-h2 and zb-v of --pipeline-schedule delay weight gradients; leave it out"},
      {"overlap-p2p-communication-warmup-flush", Switch, Parallel,
       "the program fixes the order of messages; leave it out"},
      {"account-for-embedding-in-pipeline-split", Switch, Parallel,
       "name the layers of each stage with --pipeline-model-parallel-layout or --decoder-first-pipeline-num-layers"},
      {"account-for-loss-in-pipeline-split", Switch, Parallel,
       "name the layers of each stage with --pipeline-model-parallel-layout or --decoder-last-pipeline-num-layers"},
      {"pipeline-model-parallel-split-rank", Value, Parallel, "encoder-decoder models are not in this version"},
      {"distribute-saved-activations", Switch, Parallel, "use --sequence-parallel, which cuts saved activations too"},
      {"external-cuda-graph", Switch, Run, "the trainer makes the graphs: use --enable-cuda-graph"},
      {"cuda-graph-impl", Value, Run, "the trainer makes the graphs: use --enable-cuda-graph", {"none"}},
      {"cuda-graph-scope",
       List,
       Run,
       "a graph holds a pass, or what lies between two communications of it; leave it out",
       {"full"}},
      {"cuda-graph-warmup-steps", Value, Run, "a graph is made when its operations come the second time; leave it out"},
  };
}

std::vector<RefusedRow> training_rows() {
  using enum ValueKind;
  using enum OptionGroup;
  const char* const kRampup = "batch-size ramp-up is not in this version; leave it out for a constant batch";
  const char* const kDecoupled = "one learning rate for all weights; leave it out";
  return {
      {"rampup-batch-size", List, Batch, kRampup},
      {"decrease-batch-size-if-needed", Switch, Batch, "the batch size never changes; leave it out"},
      {"fp8-recipe", Value, Precision, "delayed scaling is the only recipe; leave it out", {"delayed"}},
      {"fp8-interval", Value, Precision, "factors are made at every step; leave it out", {"1"}},
      {"fp8-param-gather", Switch, Precision, "weights are gathered in 16 bits; leave it out"},
      {"fp4-format", Value, Precision, "fp4 is not in this version; use --bf16"},
      {"grad-reduce-in-bf16", Switch, Precision, "gradients accumulate and are reduced in fp32; leave it out"},
      {"main-grads-dtype", Value, Precision, "gradients are fp32; leave it out", {"fp32"}},
      {"main-params-dtype", Value, Precision, "master weights are fp32; leave it out", {"fp32"}},
      {"exp-avg-dtype", Value, Precision, "moments are fp32; leave it out", {"fp32"}},
      {"exp-avg-sq-dtype", Value, Precision, "moments are fp32; leave it out", {"fp32"}},
      {"use-precision-aware-optimizer", Switch, Precision, "moments are fp32; leave it out"},
      {"fp32-residual-connection", Switch, Precision, "the residual stream has the compute type; leave it out"},
      {"fp16-lm-cross-entropy", Switch, Precision, "the loss is computed in fp32; leave it out"},
      {"tf32", Switch, Precision, "fp32 is IEEE on this device; leave it out"},
      {"decoupled-lr", Value, Optimizer, kDecoupled},
      {"decoupled-min-lr", Value, Optimizer, kDecoupled},
      {"start-weight-decay", Value, Optimizer, "weight decay is constant: use --weight-decay"},
      {"end-weight-decay", Value, Optimizer, "weight decay is constant: use --weight-decay"},
      {"weight-decay-incr-style", Value, Optimizer, "weight decay is constant: use --weight-decay", {"constant"}},
      {"data-parallel-random-init", Switch, Run, "replicas start equal; leave it out"},
      {"te-rng-tracker", Switch, Run, "random numbers depend on seed and global index only; leave it out"},
      {"reset-position-ids", Switch, Data, "positions run through a sample, as Megatron's default; leave it out"},
      {"reset-attention-mask", Switch, Data, "attention spans a sample, as Megatron's default; leave it out"},
      {"fim-data", Switch, Data, "fill-in-the-middle data is not in this version; leave it out"},
      {"sft", Switch, Data, "fine-tuning data is not in this version; leave it out"},
      {"per-split-data-args-path", Value, Data, "use --train-data-path, --valid-data-path and --test-data-path"},
      {"data-args-path", Value, Data, "put data-path into a --config file"},
      {"full-validation", Switch, Logging, "evaluation takes --eval-iters batches; leave it out"},
      {"pretrained-checkpoint", Value, Checkpoint, "use --load with --finetune"},
      {"non-persistent-save-interval", Value, Checkpoint, "use --save-interval"},
      {"yaml-cfg", Value, Run, "use --config FILE.cfg with key = value lines"},
      {"deepspeed_config", Value, Run, "DeepSpeed's files are not read; docs/from-megatron.md has the names"},
      {"world-size", Value, Run, "the launcher gives it: mpiexec -n N triax train ..."},
      {"data-parallel-size", Value, Run, "it is derived: ranks / (tp pp)"},
      {"num-microbatches", Value, Run, "it is derived: global batch / (micro-batch dp)"},
  };
}

// Triax's own names of later versions.
std::vector<RefusedRow> later_rows() {
  using enum ValueKind;
  using enum OptionGroup;
  const char* const kLater = "not in this version; leave it out";
  return {
      {"layout-invariant", Switch, Run, kLater},
      {"num-parameters", Value, Model, "name the model with --model or its dimensions"},
  };
}

struct Rename {
  const char* old_name;
  ValueKind kind;
  const char* new_name;
};

}  // namespace

std::vector<OptionEntry> refused_entries() {
  std::vector<OptionEntry> all;
  for (const auto& rows : {model_rows(), parallel_rows(), training_rows(), later_rows()}) {
    for (const RefusedRow& row : rows) {
      OptionEntry entry{.name = row.name, .kind = row.kind, .group = row.group, .help = ""};
      entry.status = OptionStatus::Refused;
      entry.reason = row.reason;
      entry.allowed = row.allowed;
      all.push_back(std::move(entry));
    }
  }
  return all;
}

std::vector<OptionEntry> renamed_entries() {
  using enum ValueKind;
  const std::vector<Rename> renames = {
      {"model-parallel-size", Value, "tensor-model-parallel-size"},
      {"batch-size", Value, "micro-batch-size"},
      {"checkpoint-activations", Switch, "recompute-granularity"},
      {"activations-checkpoint-method", Value, "recompute-method"},
      {"activations-checkpoint-num-layers", Value, "recompute-num-layers"},
      {"checkpoint-num-layers", Value, "recompute-num-layers"},
      {"DDP-impl", Value, "zero-stage"},
      {"use-custom-fsdp", Switch, "use-megatron-fsdp"},
      {"warmup", Value, "lr-warmup-fraction"},
      {"encoder-num-layers", Value, "num-layers"},
      {"encoder-seq-length", Value, "seq-length"},
      {"tensor-parallel-size", Value, "tensor-model-parallel-size"},
      {"pipeline-parallel-size", Value, "pipeline-model-parallel-size"},
      {"deepspeed-activation-checkpointing", Switch, "recompute-granularity"},
      {"gradient-clipping", Value, "clip-grad"},
      {"learning-rate", Value, "lr"},
      {"exit-duration-min", Value, "exit-duration-in-mins"},
  };
  std::vector<OptionEntry> all;
  for (const Rename& rename : renames) {
    OptionEntry entry{.name = rename.old_name, .kind = rename.kind, .group = OptionGroup::Run, .help = ""};
    entry.status = OptionStatus::Renamed;
    entry.reason = rename.new_name;
    all.push_back(std::move(entry));
  }
  return all;
}

}  // namespace triax::io

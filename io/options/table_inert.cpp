// Megatron-LM's options that are accepted without effect: they change neither the result nor what is measured.
#include "io/options/entries.h"

namespace triax::io {
namespace {

struct InertRow {
  const char* name;
  ValueKind kind;
  OptionGroup group;
  const char* reason;
  std::vector<std::string> allowed = {};  ///< other values are refused, with `reason`
};

std::vector<InertRow> library_rows() {
  using enum ValueKind;
  using enum OptionGroup;
  return {
      {"use-mcore-models", Switch, Model, "there is one model implementation"},
      {"transformer-impl", Value, Model, "there is one model implementation"},
      {"spec", List, Model, "there is one model implementation"},
      {"openai-gelu", Switch, Model, "GELU is always its tanh form", {"true"}},
      {"attention-softmax-in-fp32", Switch, Precision, "always: softmax is fp32 or wider"},
      {"apply-query-key-layer-scaling", Switch, Precision, "scores are fp32, where this scaling cancels"},
      {"attention-backend",
       Value,
       Model,
       "attention is always tiled, without an s x s matrix; unfused and local would ask for one: use auto, flash or "
       "fused",
       {"auto", "flash", "fused"}},
      {"use-flash-attn", Switch, Model, "attention is always tiled, without an s x s matrix", {"true"}},
      {"masked-softmax-fusion", Switch, Model, "kernels are always fused"},
      {"bias-swiglu-fusion", Switch, Model, "kernels are always fused"},
      {"bias-dropout-fusion", Switch, Model, "kernels are always fused"},
      {"rope-fusion", Switch, Model, "kernels are always fused"},
      {"cross-entropy-loss-fusion", Switch, Model, "the loss is always fused and never gathers logits"},
      {"cross-entropy-fusion-impl", Value, Model, "the loss is always fused and never gathers logits"},
      {"persist-layer-norm", Switch, Model, "kernels are always fused"},
      {"gradient-accumulation-fusion", Switch, Precision, "weight gradients always accumulate in place"},
      {"accumulate-allreduce-grads-in-fp32", Switch, Precision, "always: gradients are fp32 or wider", {"true"}},
      {"calculate-per-token-loss",
       Switch,
       Batch,
       "always: the loss is the mean over all tokens of the global batch",
       {"true"}},
      {"deterministic-mode", Switch, Run, "always: sums have a fixed order"},
      {"use-cpu-initialization", Switch, Run, "initial weights depend on seed and global index only"},
      {"init-model-with-meta-device", Switch, Run, "weights are made where they live"},
      {"perform-initialization", Switch, Run, "weights are always initialised", {"true"}},
      {"use-torch-optimizer-for-cpu-offload", Switch, Optimizer, "there is no offload"},
      {"overlap-param-gather-with-optimizer-step", Switch, Parallel, "the program fixes when weights are gathered"},
      {"align-grad-reduce", Switch, Parallel, "the program fixes where gradients are reduced"},
      {"align-param-gather", Switch, Parallel, "the program fixes when weights are gathered"},
      {"ddp-average-in-collective", Switch, Parallel, "the mean is taken once, at the end, in fp32"},
      {"ddp-pad-buckets-for-high-nccl-busbw", Switch, Parallel, "NCCL is not used"},
      {"async-tensor-model-parallel-allreduce", Switch, Parallel,
       "the input gradient is always reduced while weights' is computed"},
      {"recompute-modules",
       List,
       Parallel,
       "selective recomputation covers attention's inside: core_attn",
       {"core_attn"}},
      {"defer-embedding-wgrad-compute", Switch, Parallel, "an order of the same sums", {"false"}},
      {"distributed-backend", Value, Run, "MPI starts and connects the ranks"},
      {"local-rank", Value, Run, "MPI starts and connects the ranks"},
      {"nccl-communicator-config-path", Value, Run, "NCCL is not used"},
      {"use-ring-exchange-p2p", Switch, Run, "MPI connects the ranks", {"false"}},
      {"lazy-mpu-init", Value, Run, "groups are made at start"},
      {"batch-p2p-communication", Switch, Parallel, "the program fixes the order of messages"},
      {"num-distributed-optimizer-instances", Value, Parallel, "there is no distributed optimizer", {"1"}},
  };
}

std::vector<InertRow> logging_rows() {
  using enum ValueKind;
  using enum OptionGroup;
  const char* const kColumns = "metrics.jsonl and the event files have fixed columns";
  const char* const kTimers = "no timers that add barriers; run `triax train` with its metrics instead";
  const char* const kWandb = "wandb is not used";
  return {
      {"log-timers-to-tensorboard", Switch, Logging, kColumns},
      {"log-memory-to-tensorboard", Switch, Logging, "always written"},
      {"log-batch-size-to-tensorboard", Switch, Logging, "always written"},
      {"log-learning-rate-to-tensorboard", Switch, Logging, "always written"},
      {"log-loss-scale-to-tensorboard", Switch, Logging, "always written"},
      {"log-validation-ppl-to-tensorboard", Switch, Logging, "always written"},
      {"log-world-size-to-tensorboard", Switch, Logging, "run.json has it"},
      {"log-num-zeros-in-grad", Switch, Logging, kColumns},
      {"log-params-norm", Switch, Logging, kColumns},
      {"log-progress", Switch, Logging, "metrics.jsonl has the progress"},
      {"log-memory-interval", Value, Logging, "metrics.jsonl has memory of every iteration"},
      {"log-energy", Switch, Logging, kColumns},
      {"timing-log-level", Value, Logging, kTimers},
      {"timing-log-option", Value, Logging, kTimers},
      {"barrier-with-L1-time", Switch, Logging, kTimers},
      {"tensorboard-log-interval", Value, Logging, "event files have every iteration"},
      {"tensorboard-queue-size", Value, Logging, "event files are written at once"},
      {"one-logger-async", Switch, Logging, kWandb},
      {"enable-one-logger", Switch, Logging, kWandb},
      {"one-logger-project", Value, Logging, kWandb},
      {"one-logger-run-name", Value, Logging, kWandb},
      {"wandb-project", Value, Logging, kWandb},
      {"wandb-entity", Value, Logging, kWandb},
      {"wandb-exp-name", Value, Logging, kWandb},
      {"wandb-save-dir", Value, Logging, kWandb},
      {"logging-level", Value, Logging, "logs go to stderr at one level"},
      {"use-pytorch-profiler", Switch, Logging, "--profile writes traces in the form of PyTorch's profiler anyway"},
  };
}

std::vector<InertRow> data_rows() {
  using enum ValueKind;
  using enum OptionGroup;
  const char* const kFormat = "checkpoints are HDF5 files that every layout reads";
  const char* const kRandom = "random numbers are a function of seed and step";
  return {
      {"num-workers", Value, Data, "one thread prefetches"},
      {"mmap-bin-files", Switch, Data, "files are always mapped: same tokens"},
      {"create-attention-mask-in-dataloader", Switch, Data, "masks are never materialised"},
      {"num-dataset-builder-threads", Value, Data, "one rank builds the index files"},
      {"dataloader-type", Value, Data, "samples are taken in the order of the index files: use single", {"single"}},
      {"manual-gc", Switch, Run, "there is no garbage collector"},
      {"manual-gc-interval", Value, Run, "there is no garbage collector"},
      {"manual-gc-eval", Switch, Run, "there is no garbage collector"},
      {"empty-unused-memory-level", Value, Run, "buffers come from arenas that never fragment"},
      {"exit-signal-handler", Switch, Run, "always: a signal saves and stops"},
      {"check-for-nan-in-loss-and-grad", Switch, Run,
       "always checked: a NaN ends the run with its place named; fp16 skips the step"},
      {"rerun-mode", Value, Run, "steps are not run twice", {"disabled"}},
      {"ckpt-format", Value, Checkpoint, kFormat},
      {"dist-ckpt-format", Value, Checkpoint, kFormat},
      {"use-dist-ckpt", Switch, Checkpoint, kFormat},
      {"auto-detect-ckpt-format", Switch, Checkpoint, kFormat},
      {"use-persistent-ckpt-worker", Switch, Checkpoint, "one thread of each rank writes"},
      {"dist-ckpt-strictness", Value, Checkpoint, "every tensor must be there, and no other"},
      {"ckpt-fully-parallel-save", Switch, Checkpoint, kFormat},
      {"ckpt-fully-parallel-load", Switch, Checkpoint, kFormat},
      {"ckpt-assume-constant-structure", Switch, Checkpoint, kFormat},
      {"ckpt-convert-format", Value, Checkpoint, kFormat},
      {"no-load-rng", Switch, Checkpoint, kRandom},
      {"no-save-rng", Switch, Checkpoint, kRandom},
  };
}

}  // namespace

std::vector<OptionEntry> inert_entries() {
  std::vector<OptionEntry> all;
  for (const auto& rows : {library_rows(), logging_rows(), data_rows()}) {
    for (const InertRow& row : rows) {
      OptionEntry entry{.name = row.name, .kind = row.kind, .group = row.group, .help = ""};
      entry.status = OptionStatus::Inert;
      entry.reason = row.reason;
      entry.allowed = row.allowed;
      all.push_back(std::move(entry));
    }
  }
  return all;
}

}  // namespace triax::io

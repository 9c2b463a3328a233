// Data and tokenizer, logging and evaluation, and how a run runs.
#include "io/options/entries.h"

namespace triax::io {
namespace {

// Shell scripts hand over '99,1,0' with its quotes when they expand an array unquoted.
OptionEntry split_option() {
  OptionEntry entry = text_option(
      "split", OptionGroup::Data, "A,B,C", [](auto& o) -> auto& { return o.data.split; },
      "weights of training, validation and test data");
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    std::string text = values[0];
    std::erase_if(text, [](char c) { return c == '\'' || c == '"'; });
    double sum = 0;
    int parts = 0;
    for (size_t begin = 0; begin <= text.size(); ++parts) {
      const size_t end = std::min(text.find(',', begin), text.size());
      const std::optional<double> weight = parse_real(text.substr(begin, end - begin));
      if (!weight || *weight < 0) return "must be one to three weights such as 969,30,1";
      sum += *weight;
      begin = end + 1;
    }
    if (parts > 3 || sum <= 0) return "must be one to three weights with a positive sum, such as 969,30,1";
    o.data.split = text;
    return {};
  };
  return entry;
}

OptionEntry device() {
  OptionEntry entry = text_option(
      "device", OptionGroup::Run, "cpu|cuda|cuda-emulated", [](auto& o) -> auto& { return o.control.device; },
      "device of the math: the CPU, a GPU for each rank, or (tests) GPUs emulated on the CPU");
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    if (values[0] != "cpu" && values[0] != "cuda" && values[0] != "cuda-emulated") {
      return "must be cpu, cuda or cuda-emulated";
    }
    o.control.device = values[0];
    return {};
  };
  return entry;
}

OptionEntry seed() {
  OptionEntry entry = text_option(
      "seed", OptionGroup::Run, "N", [](auto& o) -> auto& { return o.control.run_dir; },
      "seed of weights, dropout and data order");
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    const std::optional<int64_t> value = parse_integer(values[0]);
    if (!value || *value < 0 || *value > int64_t{0xffffffff}) return "must be a whole number from 0 to 4294967295";
    o.control.seed = static_cast<uint64_t>(*value);
    return {};
  };
  entry.get = [](const RunOptions& o) -> std::vector<std::string> { return {std::to_string(o.control.seed)}; };
  return entry;
}

OptionEntry clock() {
  OptionEntry entry = text_option(
      "clock", OptionGroup::Run, "real|virtual", [](auto& o) -> auto& { return o.control.clock; },
      "virtual: also advances Lamport clocks by --cost over the real run; equals triax program time");
  const OptionSetter set = entry.set;
  entry.set = [set](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    if (values[0] != "real" && values[0] != "virtual") return "must be real or virtual";
    return set(o, values);
  };
  return entry;
}

OptionEntry gemm_tuning() {
  OptionEntry entry = text_option(
      "gemm-tuning", OptionGroup::Run, "off|measure", [](auto& o) -> auto& { return o.control.gemm_tuning; },
      "on GPUs: measure times the algorithms of each product at its first need and takes the fastest; off takes "
      "cuBLASLt's first");
  const OptionSetter set = entry.set;
  entry.set = [set](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    if (values[0] != "off" && values[0] != "measure") return "must be off or measure";
    return set(o, values);
  };
  return entry;
}

OptionEntry check() {
  OptionEntry entry = derived_option("check", ValueKind::Value, OptionGroup::Run, "replicas|none",
                                     "replicas: compare the copies of replicated weights bit by bit");
  entry.set = [](RunOptions& o, const std::vector<std::string>& values) -> std::string {
    if (values[0] != "replicas" && values[0] != "none") return "must be replicas or none";
    o.control.check_replicas = values[0] == "replicas";
    return {};
  };
  entry.get = [](const RunOptions& o) -> std::vector<std::string> {
    return {o.control.check_replicas ? "replicas" : "none"};
  };
  return entry;
}

std::vector<OptionEntry> logging_entries() {
  constexpr OptionGroup kGroup = OptionGroup::Logging;
  return {
      integer_option(
          "log-interval", kGroup, {1}, [](auto& o) -> auto& { return o.control.log_interval; },
          "iterations between log lines (metrics.jsonl has every iteration)"),
      switch_option(
          "log-throughput", kGroup, [](auto& o) -> auto& { return o.control.log_throughput; },
          "TFLOP/s, tokens/s and MFU in the log line"),
      switch_option(
          "log-straggler", kGroup, [](auto& o) -> auto& { return o.control.log_straggler; },
          "every --log-interval steps, name ranks that are slower than their peers"),
      real_option(
          "straggler-factor", kGroup, {1, 1000}, [](auto& o) -> auto& { return o.control.straggler_factor; },
          "--log-straggler: own time over the median of the peers"),
      integer_option(
          "eval-interval", kGroup, {1}, [](auto& o) -> auto& { return o.control.eval_interval; },
          "iterations between evaluations"),
      integer_option(
          "eval-iters", kGroup, {0, kMostCount}, [](auto& o) -> auto& { return o.control.eval_iters; },
          "global batches per evaluation; 0 none"),
      switch_option(
          "tensorboard", kGroup, [](auto& o) -> auto& { return o.control.tensorboard; },
          "write TensorBoard event files"),
      text_option(
          "tensorboard-dir", kGroup, "DIR", [](auto& o) -> auto& { return o.control.tensorboard_dir; },
          "default RUN_DIR/tensorboard"),
      text_option(
          "metrics-file", kGroup, "FILE", [](auto& o) -> auto& { return o.control.metrics_file; },
          "default RUN_DIR/metrics.jsonl"),
      switch_option(
          "profile", kGroup, [](auto& o) -> auto& { return o.control.profile; },
          "write traces of some steps to RUN_DIR/trace/profile; on GPUs bracket a capture of Nsight Systems "
          "(nsys profile -c cudaProfilerApi)"),
      integer_option(
          "profile-step-start", kGroup, {0}, [](auto& o) -> auto& { return o.control.profile_step_start; },
          "--profile begins after this iteration"),
      integer_option(
          "profile-step-end", kGroup, {1}, [](auto& o) -> auto& { return o.control.profile_step_end; },
          "--profile ends with this iteration"),
      list_option(
          "profile-ranks", kGroup, "R ...", [](auto& o) -> auto& { return o.control.profile_ranks; },
          "ranks of --profile"),
      real_option(
          "peak-tflops", kGroup, kPositive, [](auto& o) -> auto& { return o.control.peak_tflops; },
          "peak of one rank, for MFU; default measured at start"),
  };
}

std::vector<OptionEntry> run_entries() {
  constexpr OptionGroup kGroup = OptionGroup::Run;
  return {
      derived_option("config", ValueKind::Value, kGroup, "FILE.cfg",
                     "options from a file, key = value; the command line wins"),
      derived_option("help", ValueKind::Switch, kGroup, "", "this text"),
      text_option(
          "run-dir", kGroup, "DIR", [](auto& o) -> auto& { return o.control.run_dir; },
          "default runs/<model>-<layout>-<date or job>"),
      device(),
      switch_option(
          "enable-cuda-graph", OptionGroup::Run, [](auto& o) -> auto& { return o.control.enable_cuda_graph; },
          "on a GPU: each pass of a micro-batch, or what lies between two of its communications, is one launch"),
      integer_option(
          "threads", kGroup, {1, 1024}, [](auto& o) -> auto& { return o.control.threads; },
          "compute threads per rank; default OMP_NUM_THREADS, else cores / ranks of the host"),
      seed(),
      switch_option(
          "skip-train", kGroup, [](auto& o) -> auto& { return o.control.skip_train; },
          "only evaluate the weights of --load"),
      integer_option(
          "exit-interval", kGroup, {1}, [](auto& o) -> auto& { return o.control.exit_interval; },
          "stop after an iteration that this divides"),
      real_option(
          "exit-duration-in-mins", kGroup, kPositive, [](auto& o) -> auto& { return o.control.exit_duration_min; },
          "stop after that many minutes"),
      real_option(
          "distributed-timeout-minutes", kGroup, kPositive,
          [](auto& o) -> auto& { return o.control.distributed_timeout_min; },
          "give up waiting for a peer after that many minutes"),
      switch_option(
          "supervisor", kGroup, [](auto& o) -> auto& { return o.control.supervisor; },
          "each rank runs as the child of a small process that records how it ends (docs/faults.md)"),
      switch_option(
          "check-for-spiky-loss", kGroup, [](auto& o) -> auto& { return o.control.check_spiky_loss; },
          "end the run at a loss of --spiky-loss-factor times the largest before it"),
      real_option(
          "spiky-loss-factor", kGroup, {1, 1e6}, [](auto& o) -> auto& { return o.control.spiky_loss_factor; },
          "of --check-for-spiky-loss"),
      switch_option(
          "shared-memory", kGroup, [](auto& o) -> auto& { return o.control.shared_memory; },
          "ranks of one host communicate through shared memory"),
      switch_option(
          "use-nccl-ub", kGroup, [](auto& o) -> auto& { return o.control.use_nccl_ub; },
          "on GPUs: tensors lie in memory registered with NCCL, which then copies less (NCCL 2.19 or newer)"),
      gemm_tuning(),
      text_option(
          "gemm-cache", kGroup, "FILE", [](auto& o) -> auto& { return o.control.gemm_cache; },
          "on GPUs: algorithms that --gemm-tuning measure chose, one file for all ranks; later runs take them from it"),
      integer_option(
          "fake-nodes", kGroup, {1}, [](auto& o) -> auto& { return o.control.fake_nodes; },
          "pretend that a host is that many nodes"),
      text_option(
          "inject", kGroup, "SPEC", [](auto& o) -> auto& { return o.control.inject; }, "delays and faults for tests"),
      check(),
      clock(),
      text_option(
          "hw", kGroup, "NAME|hw.json", [](auto& o) -> auto& { return o.control.hardware; },
          "machine (--list-hw) or a file of triax bench: what sim predicts for, where --clock virtual takes op times "
          "from instead of --cost"),
      derived_option("list-hw", ValueKind::Switch, kGroup, "", "list the named machines and exit"),
      text_option(
          "cost", kGroup, "F=1,I=1,...", [](auto& o) -> auto& { return o.control.cost; },
          "--clock virtual: cost of a whole stage for F, I, W (or B), R, OPT, REDUCE_GRAD, P2P, ...; lists give "
          "one value per stage"),
      real_option(
          "jitter", kGroup, {0, 2}, [](auto& o) -> auto& { return o.control.jitter; },
          "standard deviation of the logarithm of each op's time; --clock virtual and sim"),
      list_option(
          "straggler", kGroup, "R:I:X|rank=N:X ...", [](auto& o) -> auto& { return o.control.stragglers; },
          "position I of replica R, or that of world rank N, takes X times as long; --clock virtual and sim"),
  };
}

}  // namespace

std::vector<OptionEntry> data_entries() {
  constexpr OptionGroup kGroup = OptionGroup::Data;
  return {
      list_option(
          "data-path", kGroup, "[WEIGHT] PREFIX ...", [](auto& o) -> auto& { return o.data.data_path; },
          "prefixes of .bin/.idx pairs, each with its weight or none with"),
      list_option(
          "train-data-path", kGroup, "[WEIGHT] PREFIX ...", [](auto& o) -> auto& { return o.data.train_data_path; },
          "training data, instead of --data-path"),
      list_option(
          "valid-data-path", kGroup, "[WEIGHT] PREFIX ...", [](auto& o) -> auto& { return o.data.valid_data_path; },
          "validation data"),
      list_option(
          "test-data-path", kGroup, "[WEIGHT] PREFIX ...", [](auto& o) -> auto& { return o.data.test_data_path; },
          "test data"),
      split_option(),
      text_option(
          "data-cache-path", kGroup, "DIR", [](auto& o) -> auto& { return o.data.data_cache_path; },
          "where index files are kept"),
      switch_option(
          "mock-data", kGroup, [](auto& o) -> auto& { return o.data.mock_data; },
          "made-up tokens instead of data; needs --vocab-size or --model"),
      switch_option(
          "eod-mask-loss", kGroup, [](auto& o) -> auto& { return o.data.eod_mask_loss; },
          "no loss on end-of-document tokens"),
      text_option(
          "tokenizer-type", kGroup, "TYPE", [](auto& o) -> auto& { return o.data.tokenizer_type; },
          "default: that of the data's description"),
      text_option(
          "tokenizer-model", kGroup, "FILE", [](auto& o) -> auto& { return o.data.tokenizer_model; },
          "SentencePiece model, tokenizer.json or tiktoken ranks"),
      text_option(
          "vocab-file", kGroup, "FILE", [](auto& o) -> auto& { return o.data.vocab_file; }, "GPT-2 vocab.json"),
      text_option(
          "merge-file", kGroup, "FILE", [](auto& o) -> auto& { return o.data.merge_file; }, "GPT-2 merges.txt"),
      text_option(
          "tiktoken-pattern", kGroup, "v1|v2", [](auto& o) -> auto& { return o.data.tiktoken_pattern; },
          "split pattern of a tiktoken file"),
      integer_option(
          "tiktoken-num-special-tokens", kGroup, {0},
          [](auto& o) -> auto& { return o.data.tiktoken_num_special_tokens; }, "special tokens of a tiktoken file"),
  };
}

std::vector<OptionEntry> control_entries() {
  std::vector<OptionEntry> all = checkpoint_entries();
  for (OptionEntry& entry : logging_entries()) all.push_back(std::move(entry));
  for (OptionEntry& entry : run_entries()) all.push_back(std::move(entry));
  return all;
}

}  // namespace triax::io

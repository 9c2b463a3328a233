// Every setting of a run, after parsing: one struct that validation, trainer, planner and run.json read.
// The parser (io/options.h) fills it from Megatron-LM's option names; raw values not given stay at the defaults here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "comm/compression/options.h"
#include "comm/process_grid.h"
#include "model/config.h"
#include "parallel/fp8.h"
#include "parallel/layout.h"
#include "parallel/schedule.h"

namespace triax::io {

enum class Precision { Fp64, Fp32, Bf16, Fp16 };
/// Storage of parameters and activations.
DType compute_dtype(Precision precision);
/// Gradients, master weights, moments, statistics: fp64 under fp64, else fp32.
DType state_dtype(Precision precision);

/// How the gradients of data-parallel ranks come together.
enum class GradSync { AllReduce, ParameterServer };

struct ParallelOptions {
  comm::GridShape grid;                  ///< data is derived: world / (tp * cp * pp)
  int chunks = 1;                        ///< v, from --num-virtual-stages-per-pipeline-rank or layers per virtual stage
  int64_t decoder_first_num_layers = 0;  ///< 0: not given
  int64_t decoder_last_num_layers = 0;
  std::vector<int64_t> layer_list;  ///< --pipeline-model-parallel-layout as counts, empty: not given
  bool sequence_parallel = false;
  parallel::ScheduleKind schedule = parallel::ScheduleKind::OneFOneB;
  std::string schedule_file;      ///< of --pipeline-schedule csv:FILE
  int microbatch_group_size = 0;  ///< interleaved G; 0: p
  parallel::Recompute recompute;
  int zero_stage = 0;
  int zero_shard_group = 0;  ///< dp ranks over which ZeRO shards; 0: all
  int zero_hpz = 1;          ///< --zero-hpz-partition-size: ranks over which stage 3 cuts weights only
  int64_t zero_persistence_threshold = 100'000;
  int zero_prefetch = 1;  ///< units
  parallel::KeepGathered zero_keep = parallel::KeepGathered::Forward;
  bool zero_quantized_weights = false;  ///< stage 3: gathers carry int8 codes
  bool overlap_grad_reduce = true;
  bool overlap_param_gather = true;
  bool overlap_p2p = true;
  comm::CompressionOptions compression;
  bool scatter_gather = false;         ///< --scatter-gather-tensors-in-pipeline
  int64_t ddp_bucket_size = 0;         ///< parameters; 0: max(40e6, 1e6 * dp)
  std::string collective_algorithm;    ///< comm/algorithms/choice.h; empty: default for all groups
  bool fixed_reduction_order = false;  ///< sums in rank order, whatever the algorithm
  GradSync grad_sync = GradSync::AllReduce;
  int max_staleness = 0;  ///< updates that the weights of a step may lack, of a parameter server
};

struct BatchOptions {
  int64_t micro_batch_size = 0;   ///< b
  int64_t global_batch_size = 0;  ///< 0: b * dp
  int64_t num_micro_batches = 0;  ///< m, derived: global / (b * dp)
  int64_t train_iters = 0;
  int64_t train_samples = 0;  ///< exclusive with train_iters
};

enum class OptimizerKind { Adam, Sgd };
enum class LrDecayStyle { Constant, Linear, Cosine, InverseSquareRoot, Wsd };
enum class WsdDecayStyle { Exponential, Linear, Cosine, MinusSqrt };
enum class LrScaling { None, Linear, Sqrt };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::Adam;
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_eps = 1e-8, sgd_momentum = 0.9, weight_decay = 0.01;
  double clip_grad = 1.0;  ///< 0: off
  double lr = 0, min_lr = 0, lr_warmup_init = 0;
  LrDecayStyle lr_decay_style = LrDecayStyle::Linear;
  WsdDecayStyle lr_wsd_decay_style = WsdDecayStyle::Exponential;
  int64_t lr_decay_iters = 0, lr_decay_samples = 0;  ///< 0: train_iters / train_samples
  int64_t lr_warmup_iters = 0, lr_warmup_samples = 0;
  double lr_warmup_fraction = 0;  ///< of the decay length
  int64_t lr_wsd_decay_iters = 0, lr_wsd_decay_samples = 0;
  LrScaling lr_scaling = LrScaling::None;  ///< lr *= (global batch / base) or its square root
  int64_t lr_base_batch_size = 0;
  // fp16
  double loss_scale = 0;  ///< static; 0: dynamic
  double initial_loss_scale = 4294967296.0, min_loss_scale = 1.0;
  int64_t loss_scale_window = 1000, hysteresis = 2;
};

struct DataOptions {
  std::vector<std::string> data_path;  ///< [weight prefix]... or prefixes
  std::vector<std::string> train_data_path, valid_data_path, test_data_path;
  std::string split = "969,30,1";
  std::string data_cache_path;
  bool mock_data = false;
  bool eod_mask_loss = false;
  std::string tokenizer_type, tokenizer_model, vocab_file, merge_file, tiktoken_pattern = "v2";
  int64_t vocab_size = 0;  ///< 0: from the data's description or the tokenizer
  int64_t tiktoken_num_special_tokens = 1000;
};

/// What a save does while an earlier one is still being written.
enum class AsyncBusy { Wait, Skip };

struct RunControl {
  Precision precision = Precision::Fp32;
  std::string device = "cpu";
  bool enable_cuda_graph = false;  ///< passes are launched as CUDA graphs
  int threads = 0;                 ///< per rank; 0: OMP_NUM_THREADS, else cores / ranks of the host
  uint64_t seed = 1234;
  std::string run_dir;       ///< empty: runs/<model>-<layout>-<date>
  std::string metrics_file;  ///< empty: <run_dir>/metrics.jsonl
  std::string save, load;
  int64_t save_interval = 0;  ///< iterations; 0: every 30 minutes
  bool save_optim = true, load_optim = true;
  int64_t keep_latest = 0, save_retain_interval = 0;  ///< 0: not given
  bool async_save = false;
  AsyncBusy async_save_busy = AsyncBusy::Wait;
  int ckpt_writers_per_node = 0;  ///< 0: every rank
  int64_t ckpt_step = 0;          ///< 0: the latest
  bool finetune = false;
  bool exit_on_missing_checkpoint = false;
  bool use_checkpoint_args = false;
  bool override_scheduler = false, use_checkpoint_scheduler = false;
  bool verify_integrity = false;
  int64_t log_interval = 10;
  int64_t eval_interval = 1000, eval_iters = 100;
  bool skip_train = false;
  int64_t exit_interval = 0;
  double exit_duration_min = 0;
  double distributed_timeout_min = 10;
  bool supervisor = true;  ///< each rank is the child of a small process that records how it ends
  bool log_straggler = true;
  double straggler_factor = 1.5;  ///< own time over the median of the peers from which a rank is named
  bool check_spiky_loss = false;
  double spiky_loss_factor = 10;
  bool log_throughput = true;
  bool profile = false;  ///< steps profile_step_start + 1 to profile_step_end on profile_ranks
  int64_t profile_step_start = 10, profile_step_end = 12;
  std::vector<std::string> profile_ranks{"0"};
  bool tensorboard = true;
  std::string tensorboard_dir;
  double peak_tflops = 0;  ///< per rank, for MFU; 0: measured at start
  bool shared_memory = true;
  bool use_nccl_ub = false;         ///< memory of the GPU is registered with NCCL
  std::string gemm_tuning = "off";  ///< or "measure": algorithms of products on a GPU are timed
  std::string gemm_cache;           ///< file of the choices
  int fake_nodes = 0;
  std::string inject;  ///< --inject SPEC: delays and faults for tests
  bool check_replicas = false;
  std::string clock = "real";           ///< or "virtual": op times come from `cost` (parallel/virtual_clock.h)
  std::string cost = "F=1,I=1,W=1";     ///< parallel/cost_text.h
  std::string hardware;                 ///< --hw: name of a machine or its hw.json; empty: none
  double jitter = 0;                    ///< standard deviation of the logarithm of each op's virtual time
  std::vector<std::string> stragglers;  ///< "replica:position:factor" or "rank=N:factor"
};

struct RunOptions {
  model::ModelConfig model;
  ParallelOptions parallel;
  BatchOptions batch;
  OptimizerOptions optimizer;
  DataOptions data;
  RunControl control;
  parallel::Fp8Options fp8;
  /// Megatron names that were accepted without effect, for one line of the header.
  std::vector<std::string> inert;
};

}  // namespace triax::io

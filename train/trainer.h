// One rank's part of a training run: its model chunks, optimizer and gradient sums, driven by the program. It reads no
// files and prints nothing.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/process_grid.h"
#include "io/data/batch_loader.h"
#include "io/run_options.h"
#include "kernels/device.h"
#include "kernels/launch_recorder.h"
#include "model/stage.h"
#include "parallel/schedule.h"
#include "train/batch_upload.h"
#include "train/communication_table.h"
#include "train/executor.h"
#include "train/gradient_compression.h"
#include "train/gradient_norm.h"
#include "train/gradient_sync.h"
#include "train/loss_scaler.h"
#include "train/lr_schedule.h"
#include "train/one_bit_adam.h"
#include "train/optimizer.h"
#include "train/parameter_gather.h"
#include "train/parameter_server.h"
#include "train/pipeline_timing.h"
#include "train/run_fault.h"
#include "train/step_report.h"
#include "train/unit_runner.h"

namespace triax::train {

/// Whether this rank only runs the model forward (no optimizer state, no gradients' sums), or trains.
enum class Use { Train, Evaluate };

/// What must be kept to go on: not per-rank, the same on all ranks.
struct Progress {
  int64_t iteration = 0;         ///< steps tried; the dropout key of the next one
  int64_t updates = 0;           ///< steps that changed the weights
  int64_t schedule_samples = 0;  ///< samples of these updates: where the learning rate stands
  int64_t consumed_samples = 0;
  LossScaleState loss_scale;
};

struct StepInput {
  std::span<const io::MicroBatch> batches;  ///< m, from BatchSource
  double data_wait_s = 0;
  std::function<Wishes()> wishes;  ///< asked at the end of the step; may be empty
};

struct StepResult {
  StepTotals totals;
  std::span<const RankReport> reports;  ///< of all ranks; valid until the next step
  double grad_norm = 0;                 ///< of the mean loss, before clipping; not finite in a skipped step
  double learning_rate = 0;             ///< used by this update
  double loss_scale = 1;                ///< used by this step
  bool skipped = false;                 ///< overflow: weights, moments, counters as before
};

class Trainer final : private StageWork {
 public:
  /// Collective: builds chunks, storage, program. Options must be resolved. Weights are zero until initialize() or a
  /// load.
  Trainer(comm::ProcessGrid& grid, kernels::Device& device, Arena& arena, const io::RunOptions& options, Use use);
  ~Trainer() override;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// A fault on purpose during training steps; null: none. It must outlive the trainer.
  void set_fault(RunFault* fault);
  /// Weights from (seed, tensor name, global index).
  void initialize();
  /// One optimizer step over the global batch; collective. Throws RunTimeError for a loss or gradient that is not
  /// finite (fp16: skips), naming step, rank, stage, first tensor and samples, and for a gradient norm of exactly 0.
  StepResult train_step(const StepInput& input);
  /// Forward passes of one global batch; adds to the sums of this rank.
  void evaluate_step(std::span<const io::MicroBatch> batches);
  struct Evaluation {
    double loss = 0;  ///< mean over tokens
    double tokens = 0;
  };
  /// Mean over all evaluate_step() since the last call; collective over world.
  Evaluation finish_evaluation();

  bool holds_tokens() const;  ///< first or last virtual stage is here
  bool holds_head() const;
  parallel::ParameterStore& store() { return store_; }
  Optimizer* optimizer() { return optimizer_.get(); }
  const GradientSync& gradient_sync() const { return *sync_; }
  /// Null without --fp8-format.
  parallel::Fp8Scales* fp8() { return fp8_.get(); }
  /// Host memory for its history, while it is saved.
  std::vector<std::vector<float>>& fp8_rows() { return fp8_rows_; }
  /// Null without --grad-compression, and where there is one dp rank.
  const GradientCompression* compression() const { return compression_.get(); }
  const parallel::Program& program() const { return program_; }
  const std::vector<std::unique_ptr<model::Chunk>>& chunks() const { return chunks_; }
  Progress& progress() { return progress_; }
  int position() const { return grid_->coord().pipeline; }
  const Executor& executor() const { return *executor_; }
  const parallel::ScheduleOptions& schedule_options() const { return schedule_options_; }
  /// --clock virtual: op times from this table instead of --cost, from the next step on. Else nothing.
  void set_virtual_costs(parallel::CostTable table);
  /// --clock virtual: picoseconds that stand for 1 in --cost (1 ms after set_virtual_costs); 0 with the real clock.
  int64_t virtual_unit_ps() const { return virtual_unit_ps_; }
  const char* virtual_unit_name() const { return virtual_unit_name_; }
  /// Of the last training step on the virtual clock; all zero with the real one.
  const parallel::StepTimes& virtual_times() const { return virtual_times_; }
  /// Op times of the last training step on all positions of this pipeline, virtual or real; collective over it.
  OpTimes op_times();
  /// Null without --enable-cuda-graph.
  const kernels::LaunchRecorder* recorder() const { return recorder_; }
  /// By which clocks those were compared.
  const comm::ClockAlignment& clocks() const { return clocks_; }
  /// Tensor of which the masters and weights are filled: state dtype, device memory, [store().numel()];
  /// weights_changed() after, on all ranks: under ZeRO it gathers.
  Tensor weight_source();
  void weights_changed();
  /// Makes every parameter's weight whole and up to date, until the next step or evaluation. Collective over dp; under
  /// ZeRO 3 it takes the memory of all weights.
  void gather_weights();
  /// --grad-sync parameter-server: waits until the updates of all steps are in the weights of all ranks; to be called
  /// by all before the weights are read. Else nothing.
  void settle();
  /// What the training steps so far communicated, of this rank; what comes now is outside of them.
  const StepCommunication& communication();
  /// The same, with how long operations on a device waited for their last member; collective over world.
  const StepCommunication& finish_communication();
  /// Of this rank, with a parameter server; else null.
  const StalenessReport* staleness() const { return server_ ? &server_->staleness() : nullptr; }
  /// One line about all ranks, after settling; collective over world. Empty without a parameter server.
  std::string staleness_text();

 private:
  struct ChunkStates {
    std::vector<std::unique_ptr<model::ChunkState>> free;
    std::vector<std::unique_ptr<model::ChunkState>> in_use;  ///< [micro-batch]
  };
  Buffer compute(const parallel::Op& op, Buffer input) override;
  void update(const parallel::Op& op) override;
  void build_fp8();
  void build_storage();
  void initialize_values(const FlatRange& range, Tensor values);
  void build_programs();
  void build_compression();
  void start_run(const parallel::Program& program, const std::vector<std::vector<parallel::UnitOp>>& lists);
  size_t index_of(const parallel::Op& op) const;
  void refresh_weights();
  void build_clock();
  void start_clock();
  /// What the update from a step's gradients needs, until the server makes it.
  struct Handed {
    kernels::StepBlock step;
    double tokens = 0;
  };
  void build_server();
  void hand_to_server();
  void apply_update(int64_t update);
  void gradient_norm();
  /// Norm, clipping and overflow of the summed gradient.
  void measure_gradient(double tokens);
  /// 1-bit Adam after its warm-up.
  bool codes_momentum() const { return one_bit_adam_ && compression_->active(); }
  double global_tokens();
  double exposed_s() const;  ///< of all groups, so far
  void prepare_step();
  void publish_step() { device_->upload_step(now_, step_); }
  Arena& host_arena() { return device_->on_host() ? *arena_ : host_arena_; }
  double take_loss_sum();
  RankReport report(const StepInput& input, const ExecutionTimes& times);
  /// Collective: every rank throws the words of the first that holds a bad gradient.
  [[noreturn]] void fail_nonfinite(double loss);
  std::string where() const;
  void give_back_state(const parallel::Op& op);

  comm::ProcessGrid* grid_;
  kernels::Device* device_;
  Arena* arena_;
  io::RunOptions options_;
  Use use_;
  HeapProvider host_memory_;
  Arena host_arena_{
      host_memory_};  ///< for tensors that only the host sees, where the device's memory is not the host's
  Buffer step_buffer_, loss_buffer_, staging_buffer_;
  kernels::StepBlock now_;              ///< of the running step
  kernels::StepBlock* step_ = nullptr;  ///< the same in device memory
  Tensor loss_sum_;                     // [1] fp64
  BatchUpload uploads_;
  std::unique_ptr<parallel::Fp8Scales> fp8_;
  std::vector<std::vector<float>> fp8_rows_;
  kernels::LaunchRecorder* recorder_;  ///< null without --enable-cuda-graph
  parallel::LayerContext context_;     ///< the model works on the recorder's device
  parallel::ParameterStore store_;
  std::vector<std::unique_ptr<model::Chunk>> chunks_;
  std::vector<ChunkStates> states_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<GradientSync> sync_;
  std::unique_ptr<ParameterGather> gather_;
  std::unique_ptr<UnitRunner> units_;  ///< null at dp 1
  bool weights_fresh_ = true;          ///< what the owners have updated has reached all ranks
  std::unique_ptr<GradientNorm> norm_;
  std::unique_ptr<GradientCompression> compression_;
  std::unique_ptr<OneBitAdam> one_bit_adam_;
  LossScaler scaler_;
  LrSchedule schedule_;
  parallel::Program program_, evaluation_program_;
  std::vector<std::vector<parallel::UnitOp>> unit_ops_, evaluation_unit_ops_;  ///< [op of this position]
  const parallel::Program* running_ = nullptr;
  parallel::ScheduleOptions schedule_options_;
  std::unique_ptr<Executor> executor_, evaluator_;
  parallel::CostTable virtual_costs_;
  int64_t virtual_unit_ps_ = 0;
  const char* virtual_unit_name_ = "unit";
  std::unique_ptr<parallel::VirtualClock> clock_;
  parallel::StepTimes virtual_times_;
  RunFault* fault_ = nullptr;
  std::vector<Handed> handed_;  ///< [step mod (S + 1)]
  ReportExchange exchange_;
  Progress progress_;
  parallel::Mode mode_ = parallel::Mode::Train;
  std::span<const io::MicroBatch> batches_;
  std::vector<parallel::MicroBatch> views_;
  std::vector<size_t> batch_slots_, evaluation_batch_slots_;  ///< [micro-batch]
  double counted_tokens_ = 0;                                 ///< of this rank's share, this step
  double grad_norm_ = 0;
  StepCommunication communication_;
  comm::ClockAlignment clocks_;
  double sent_bytes_before_ = 0, exposed_before_ = 0;  ///< when the step began
  double evaluation_loss_ = 0, evaluation_tokens_ = 0;
  std::unique_ptr<ParameterServer> server_;  ///< last: settles when it goes, with all else in place
};

}  // namespace triax::train

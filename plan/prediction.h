// What a step of a run costs on a machine before it runs: time by cause, memory by category, throughput, bytes by link.
// `triax sim` prints it, the planner ranks by it, `sim --verify` holds it against a real run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/hardware.h"
#include "io/run_options.h"
#include "model/counts.h"
#include "parallel/simulator.h"
#include "plan/cost_model.h"
#include "plan/memory_report.h"
#include "plan/step_split.h"
#include "plan/traffic.h"

namespace triax::plan {

/// Cheap: the closed form of step_time.h, no program is made; parts are of the slowest stage, bubbles one sum under
/// BubbleFill, stages have memory only. Full: the program of the run, simulated op by op, with bytes by link.
enum class Detail { Cheap, Full };

struct PredictionOptions {
  Detail detail = Detail::Full;
  ExactScope exact = ExactScope::None;  ///< which stages' memory the trainer's own code is run for
  parallel::TimeOptions time;           ///< jitter, stragglers; Full only
  int recorded_replica = 0;             ///< whose op times are kept and split; matters only where replicas differ
  double train_tokens = 0;              ///< of the whole training; 0: not asked
};

/// The machine's "runtime_bytes", 0 where it names none.
double runtime_bytes_of(const bench::Hardware& hardware);

struct StagePrediction {
  TimeSplit time;             ///< sums to step_ps; Full only
  model::StageMemory memory;  ///< by formula
  std::string peak_op;        ///< op whose activations reach the formula's peak: "0F3"
  std::optional<train::MemoryForecast> exact;
  int64_t runtime_bytes = 0;  ///< the machine's "runtime_bytes": contexts and library buffers, outside both engines
  /// Exact where it was run, else by formula; with runtime_bytes.
  int64_t bytes() const;
};

/// The program and its simulated times, for traces and pictures.
struct SimulatedStep {
  parallel::Program program;
  parallel::CostTable table;
  parallel::Simulation simulation;
  std::vector<StageParts> parts;  ///< what the table's compute entries consist of
};

/// A constant that nobody has measured, fitted or published for this machine and that the step's time depends on.
struct AssumedConstant {
  std::string name;  ///< "links.infiniband.latency_s"
  bench::Constant constant;
  double step_change = 0;  ///< relative change of the step's time when the constant is 10 % larger
};

struct Prediction {
  int64_t step_ps = 0;
  TimeSplit time;  ///< sums to step_ps; Full: mean over stages
  std::vector<StagePrediction> stages;
  double bubble_of_total = 0;  ///< as parallel::Simulation defines it

  int ranks = 1;
  double peak_flops = 0;  ///< of one device, dense, in the compute dtype
  DType peak_dtype = DType::Float32;
  model::StepFlops flops_dense, flops_causal;  ///< of the whole step: attention's full square, its causal half
  double tokens_per_step = 0;
  double train_tokens = 0;

  double memory_limit_bytes = 0;  ///< of one device
  int fullest = 0;                ///< position with the most bytes()
  bool fits() const;

  Traffic traffic;                         ///< Full only
  std::optional<SimulatedStep> simulated;  ///< Full only

  double step_s() const { return static_cast<double>(step_ps) * 1e-12; }
  double tokens_per_s() const { return tokens_per_step / step_s(); }
  /// FLOP/s of one device.
  double achieved(double step_flops) const { return step_flops / step_s() / ranks; }
  /// Share of the peak: model FLOPs (MFU) or hardware FLOPs (HFU) in one of the two counts of attention.
  double utilization(double step_flops) const { return achieved(step_flops) / peak_flops; }
  /// Seconds and device-hours of train_tokens.
  double training_s() const { return train_tokens / tokens_per_s(); }
  double device_hours() const { return training_s() / 3600 * ranks; }
};

/// Options must be resolved (io::resolve). Throws ConfigError where the machine's description lacks what the run needs.
Prediction predict(const io::RunOptions& options, const bench::Hardware& hardware, const PredictionOptions& what = {});
/// The full one from costs that are known already.
Prediction predict(const io::RunOptions& options, const bench::Hardware& hardware, Costs costs,
                   const PredictionOptions& what = {});

/// What the run's options ask for and no price knows: one sentence each, for a note beside the prediction.
std::vector<std::string> unpriced(const io::RunOptions& options);

/// Assumed constants of the machine (with_defaults of plan/device_time.h) and of this program by their effect, largest
/// first; those below `least` (relative) are left out. Prices the step once for each, by the closed forms.
std::vector<AssumedConstant> assumed_that_matter(const io::RunOptions& options, const bench::Hardware& hardware,
                                                 double least = 0.001);

}  // namespace triax::plan

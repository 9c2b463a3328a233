// Memory of every pipeline stage of a run, by two engines: the closed forms (model/memory_formulas.h) and the exact
// forecast, which runs the trainer's own code over reserved address space (train/memory_forecast.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/hardware.h"
#include "io/run_options.h"
#include "model/memory_formulas.h"
#include "train/memory_forecast.h"

namespace triax::plan {

/// Main gradients: fp32 (fp64 under --fp64), or bf16 as --grad-reduce-in-bf16 stores them.
enum class GradientStorage { Wide, Bf16 };

/// What the closed forms need beside the run's options.
struct MemoryTerms {
  model::ZeroSharding zero;
  GradientStorage gradients = GradientStorage::Wide;
  model::AttentionMemory attention = model::AttentionMemory::Flash;
};

/// Those of the trainer: flash attention, ZeRO as the options say. `options` must be resolved.
MemoryTerms memory_terms_of(const io::RunOptions& options);

/// Bytes per parameter of weights, gradients and optimizer states: Adam keeps two moments, SGD one (none at momentum
/// 0); 16-bit weights have a master copy.
model::StateWidths state_widths(const io::RunOptions& options, GradientStorage gradients);

/// One element per pipeline position; options must be resolved (io::resolve).
std::vector<model::StageMemory> memory_by_formula(const io::RunOptions& options, const MemoryTerms& terms);

/// Fewer micro-batches (never more) with the same most chunks in flight on every position: the steady state repeats
/// itself, so that a long step has the peak of a short one. `options` must be resolved.
int64_t equivalent_micro_batches(const io::RunOptions& options);

/// Which positions the exact forecast runs.
enum class ExactScope { None, Ends, All };

struct ExactStage {
  int position = 0;
  train::MemoryForecast forecast;
};
struct ExactMemory {
  std::vector<ExactStage> stages;  ///< ascending positions
  int64_t micro_batches = 0;       ///< of the step that was run
  double work = 0;                 ///< layer passes of all positions: what All takes, see exact_work()
};
/// Layer passes (forward or backward of one layer and micro-batch) that All would run, with what making the programs
/// costs, in the same unit: about 3 microseconds each.
double exact_work(const io::RunOptions& options, int64_t micro_batches);

/// Tensor rank 0, replica 0 of each position asked for; the others of its group need the same.
ExactMemory exact_memory(const io::RunOptions& options, int64_t micro_batches, ExactScope scope);

/// The fullest rank of a run beside one device of a machine.
struct DeviceRoom {
  std::string machine;
  int64_t device_bytes = 0;
  int64_t runtime_bytes = 0;  ///< of them, what contexts and libraries take (prediction.h)
  int64_t needed_bytes = 0;   ///< the fullest stage, with them
  bool fits() const { return needed_bytes <= device_bytes; }
};

/// Of each stage what the trainer's own code takes, where it was run, else the formula.
DeviceRoom room_on(const bench::Hardware& hardware, const std::vector<model::StageMemory>& formula,
                   const std::vector<ExactStage>& exact);

}  // namespace triax::plan

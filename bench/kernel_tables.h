// Which sizes of which kernels stand in hw.json, and measuring them within a budget: coarse grids first, what is left
// of the time refines them.
#pragma once

#include <functional>
#include <vector>

#include "bench/hardware.h"
#include "bench/operands.h"
#include "bench/timing.h"
#include "model/config.h"

namespace triax::bench {

/// Whose sizes: of a CPU's core, tokens to 2048 and widths to 4096, or of a GPU, to 16384 and 12288.
enum class PlanFor { Host, Gpu };
inline constexpr int64_t kAnyElements = int64_t{1} << 40;

/// Elementwise, norm, attention, loss and optimizer kernels, coarse sizes first; of up to `most_elements` (attention:
/// 16 times as many of its s x s x d).
std::vector<KernelPoint> kernel_plan(const std::vector<DType>& dtypes, PlanFor what = PlanFor::Host,
                                     int64_t most_elements = kAnyElements);

/// The three GEMMs of linear layers [tokens, in] -> [tokens, out] up to `most_flops`, coarse sizes first.
std::vector<GemmPoint> gemm_plan(const std::vector<DType>& dtypes, PlanFor what, double most_flops);

/// A model on a layout as its linear layers see it.
struct ShapeOptions {
  int64_t tensor_parallel = 1;
  int64_t micro_batch = 1;
  DType dtype = DType::Float32;
};
/// One GEMM of a model: "qkv", "proj", "fc1" (gate and up together), "fc2", "logits".
struct ModelGemm {
  const char* layer;
  GemmPoint shape;
};
/// Forward, gradient of the input, gradient of the weight (accumulating) of each linear layer on one tp rank. Heads
/// beyond the KV heads are replicated as in training. ConfigError where tp does not divide the model.
std::vector<ModelGemm> model_gemms(const model::ModelConfig& model, const ShapeOptions& options);

/// The other kernels of a model on one tp rank: norms, residual sums, activation, attention, embedding, loss, and the
/// optimizer over all, half and a quarter of the rank's parameters (ZeRO and pipeline stages).
std::vector<KernelPoint> model_kernels(const model::ModelConfig& model, const ShapeOptions& options);

/// Seconds since the start that all ranks agree on.
class Budget {
 public:
  Budget(double seconds, comm::Communicator* group);
  /// Collective: at least `seconds` are left on the rank that has least.
  bool leaves(double seconds) const;
  double total_s() const { return total_s_; }
  double elapsed_s() const;

 private:
  double total_s_, start_s_;
  comm::Communicator* group_;
};

/// Fills time_s of as many points as the budget allows, a batch at a time in random order, and drops the rest. The
/// first batch is always measured.
void measure_gemms(Operands& operands, const TimingOptions& timing, const Budget& budget, comm::Communicator* group,
                   std::vector<GemmPoint>& points);
void measure_kernels(Operands& operands, const TimingOptions& timing, const Budget& budget, comm::Communicator* group,
                     std::vector<KernelPoint>& points);

}  // namespace triax::bench

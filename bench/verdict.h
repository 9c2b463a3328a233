// What a measured number is worth: its share of what the link or the core could do at most, and what usually causes it
// to be low.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/collectives.h"
#include "bench/hardware.h"
#include "bench/machine.h"
#include "bench/operands.h"

namespace triax::bench {

struct Verdict {
  double share = 0;                 ///< of the peak; 0: there is no peak to compare with
  std::string of;                   ///< what the peak is: "core peak", "memory copy", "adapter"
  std::vector<std::string> causes;  ///< likely ones, most likely first; empty when the share is good
  /// "61 % of memory copy: too small, latency decides".
  std::string text() const;
};

/// What a link or a core can do at most.
struct Peak {
  double per_s = 0;  ///< bytes/s or FLOP/s; 0: not known
  std::string of;
};

/// Half of what a large copy moves with all ranks at work: every byte that a collective delivers is read once and
/// written once. Collective over `group`; kernels run on the device with the operands' memory.
/// `elements` of fp32, more than the caches hold; `settle`: TimingOptions::settle.
Peak copy_peak(Operands& operands, comm::Communicator& group, int64_t elements = int64_t{4} << 20,
               const std::function<void()>& settle = {});
/// The fastest adapter of this node (/sys/class/infiniband, else /sys/class/net): its nominal bytes/s.
Peak adapter_peak();

/// In place of a verdict, where a GPU is emulated.
inline constexpr const char* kEmulated = "emulation on the CPU: no speed of a GPU";

/// What surrounds a measurement.
struct Circumstances {
  int ranks_on_host = 1;
  int cores = 1;
  BufferPlace place = BufferPlace::Window;
  double least_time_s = 0;  ///< of the smallest size of the same operation and algorithm; 0: not known
};

Verdict verdict_of(const CollectiveRow& row, const Peak& peak, const Circumstances& around);
/// Of NCCL: against the link between the GPUs of a node, or the adapter.
Verdict verdict_on_gpu(const CollectiveRow& row, const Peak& link, double least_time_s);
/// Of a kernel, FLOP/s or bytes/s against the GPU's own best.
Verdict verdict_on_gpu(double per_s, double time_s, const Peak& peak);
/// `threads`: of the process; cv: of the samples.
Verdict verdict_of(const GemmPoint& point, const Machine& machine, int threads, double cv);
/// Against the larger of core peak (attention) and memory bandwidth (everything else) that `memory_per_s` gives.
Verdict verdict_of(const KernelPoint& point, const Machine& machine, int threads, double memory_per_s, double cv);

}  // namespace triax::bench

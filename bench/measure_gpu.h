// What `triax bench all` measures of a GPU alone: what a launch costs the host, copies to and from the host, memory,
// and how large calls may be that the budget allows.
#pragma once

#include "bench/hardware.h"
#include "bench/operands.h"
#include "bench/peer_links.h"
#include "bench/timing.h"

namespace triax::bench {

/// The largest calls that take no longer than some time.
struct CallLimits {
  double most_flops = 0;      ///< of a GEMM
  int64_t most_elements = 0;  ///< of another kernel, in the slowest of which an element costs 10 times a copy's
};
/// From GEMMs of doubling sides and copies of growing size until they take a while. Collective over `world`; every rank
/// gets the same.
CallLimits call_limits(Operands& operands, const TimingOptions& timing, comm::Communicator& world, double most_s);

/// Constants of hw.json: "launch_s", host seconds to give the GPU one kernel while it is busy; "launch_latency_s", a
/// kernel that does nothing and the wait for it; "host_to_device_bytes_per_s", "device_to_host_bytes_per_s": pinned,
/// all ranks at once, copies of `copy_bytes`; "multiprocessors". Collective over `world`.
std::map<std::string, Constant> gpu_constants(kernels::DiscreteDevice& device, Arena& arena, comm::Communicator& world,
                                              int64_t copy_bytes);

/// Bytes of the GPU's memory in use beside the tensors of `arena` and the device's own scratch: context, code,
/// libraries' buffers (and other processes'). Once all libraries have run.
double gpu_runtime_bytes(const kernels::DiscreteDevice& device, const Arena& arena);

}  // namespace triax::bench

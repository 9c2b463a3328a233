// What stand-ins of the emulated GPU have seen, for tests that load the module.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace triax::emulated {

struct Recorded {
  bool recording = false;
  int starts = 0, stops = 0, depth = 0;
  std::vector<std::string> ranges;  // while recording: names as they begin, "/" as they end
};

/// Calls so far that took memory of the GPU, or pinned memory.
struct MemoryCounts {
  int64_t device = 0, pinned = 0;
};

struct NcclCounts {
  int64_t registered = 0;             // buffers of communicators, now
  int64_t operations = 0;             // so far
  int64_t operations_on_buffers = 0;  // of these, with all data in registered buffers
};

/// What the host has given the GPU, so far.
struct HostCalls {
  int64_t kernels = 0;         // launched one by one; products of cuBLASLt are kernels too
  int64_t captured = 0;        // kernels that went into a graph instead
  int64_t graph_launches = 0;  // each one call
  int64_t graph_kernels = 0;   // kernels in these
  int64_t graphs = 0;          // executable ones, now
};

/// Of the environment, when the driver started.
struct DriverSettings {
  std::string module_loading, max_connections;
};

/// Which of the streams with work the GPU takes from next.
enum class StreamOrder {
  Random,
  NewestHeld,  // random, and the one made last only while another stream waits for it; that the host waits is not
               // enough
};

}  // namespace triax::emulated

/// Of the module, by these names. triax_emulated_apart: above 0 while the calling thread works for the emulation.
extern "C" {
triax::emulated::Recorded* triax_emulated_recorded();
triax::emulated::NcclCounts* triax_emulated_nccl();
triax::emulated::HostCalls* triax_emulated_host_calls();
std::atomic<triax::emulated::StreamOrder>* triax_emulated_stream_order();
triax::emulated::MemoryCounts* triax_emulated_memory();
const triax::emulated::DriverSettings* triax_emulated_driver();
int* triax_emulated_apart();
}

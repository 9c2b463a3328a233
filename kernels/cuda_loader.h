// The CUDA device lives in a shared module of its own (kernels/cuda), so that the program needs no CUDA library to
// start: the module is loaded when a device is asked for.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/discrete_device.h"

namespace triax::kernels {

/// Cuda needs a GPU; Emulated is the same sources compiled for the host, where every CUDA thread is a fiber (tests).
enum class CudaModule { Cuda, Emulated };

/// How the algorithm of a product is chosen: the first of cuBLASLt's heuristic, or the fastest of its first eight,
/// timed when the product is first needed.
enum class GemmTuning { Off, Measure };

struct GemmSearch {
  GemmTuning tuning = GemmTuning::Off;
  std::string cache{};      ///< file of the choices, of all ranks (kernels/cuda/gemm_choices.h); Measure needs one
  double patience_s = 600;  ///< how long another process may hold the file
};

struct CudaDeviceOptions {
  int ordinal = 0;      ///< among the GPUs that this process sees
  int local_rank = -1;  ///< if not negative, in place of the ordinal: this rank's number on its host
  GemmSearch gemm_search{};
  std::function<void(const std::string&)> log{};  ///< is told which way of its own the device had to take; may be empty
};

/// Loads the module from ../lib/triax beside the running program, once. ConfigError when this build has no such module;
/// RunTimeError with the remedy when there is no driver, an older one than the module needs, no such GPU, or one of a
/// compute capability below 8.0.
std::unique_ptr<DiscreteDevice> make_cuda_device(const CudaDeviceOptions& options, CudaModule module);

/// Address of a function of the loaded module; null when it has none of that name.
void* cuda_module_symbol(CudaModule module, const char* name);

/// The module's file, whether or not it exists.
std::string cuda_module_path(CudaModule module);

}  // namespace triax::kernels

// Which drivers and GPUs the CUDA module runs on, as plain rules on version numbers; the module itself asks the
// machine.
#pragma once

#include <string>

namespace triax::kernels {

/// Why this driver cannot run a module built with that runtime, with the remedy; empty when it can. Versions as CUDA
/// gives them (1000 * major + 10 * minor); driver 0 means that there is none.
std::string driver_refusal(int driver_version, int runtime_version);

/// Why a GPU of this compute capability is not supported, with the remedy; empty when it is.
std::string gpu_refusal(const std::string& gpu, int major, int minor);

/// "12.2" of 12020.
std::string cuda_version_text(int version);

}  // namespace triax::kernels

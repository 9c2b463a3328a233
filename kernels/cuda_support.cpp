#include "kernels/cuda_support.h"

#include <fmt/format.h>

namespace triax::kernels {

std::string cuda_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string driver_refusal(int driver_version, int runtime_version) {
  if (driver_version == 0) {
    return "no NVIDIA driver answers on this machine: run on a node with a GPU (in a container: with its driver "
           "mounted), or use --device cpu";
  }
  // A driver serves every runtime of its own major version and of older ones.
  if (driver_version / 1000 >= runtime_version / 1000) return "";
  return fmt::format(
      "the driver serves CUDA {} and older, this program was built with CUDA {}: install a driver for CUDA {}.0 or "
      "newer, or build with a CUDA {}.x toolkit (12.2 or newer), or use --device cpu",
      cuda_version_text(driver_version), cuda_version_text(runtime_version), runtime_version / 1000,
      driver_version / 1000);
}

std::string gpu_refusal(const std::string& gpu, int major, int minor) {
  if (major >= 8) return "";
  return fmt::format(
      "{} has compute capability {}.{}: the kernels need 8.0 (A100, RTX 30) or newer, for bf16 on tensor cores. "
      "CUDA 12.9 is the last toolkit that compiles for 7.0, but no version of this program does; use --device cpu",
      gpu, major, minor);
}

}  // namespace triax::kernels

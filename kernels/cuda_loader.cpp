#include "kernels/cuda_loader.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

namespace triax::kernels {

std::string cuda_module_path(CudaModule module) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const char* const name = module == CudaModule::Cuda ? "libtriax_cuda.so" : "libtriax_cuda_emulated.so";
  return (program.parent_path().parent_path() / "lib" / "triax" / name).string();
}

namespace {

void* load_module(CudaModule module) {
  const std::string path = cuda_module_path(module);
  if (!std::filesystem::exists(path)) {
    throw ConfigError(
        fmt::format("--device {}: this build has no CUDA module ({} does not exist): build with "
                    "'make PRESET=cuda' where nvcc is found, or use --device cpu",
                    module == CudaModule::Cuda ? "cuda" : "cuda-emulated", path));
  }
  // Never unloaded: the libraries behind it do not survive that.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw ApiError("dlopen", path, 1, dlerror(), __FILE__, __LINE__);
  return handle;
}

}  // namespace

void* cuda_module_symbol(CudaModule module, const char* name) { return dlsym(load_module(module), name); }

std::unique_ptr<DiscreteDevice> make_cuda_device(const CudaDeviceOptions& options, CudaModule module) {
  using Make = DiscreteDevice* (*)(const CudaDeviceOptions*);
  const auto make = reinterpret_cast<Make>(cuda_module_symbol(module, "triax_make_cuda_device"));
  if (make == nullptr) throw ApiError("dlsym", "triax_make_cuda_device", 1, dlerror(), __FILE__, __LINE__);
  return std::unique_ptr<DiscreteDevice>(make(&options));
}

}  // namespace triax::kernels

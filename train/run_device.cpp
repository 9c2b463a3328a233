#include "train/run_device.h"

#include <sched.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>

namespace triax::train {

int threads_of(const io::RunOptions& options, int local_ranks) {
  if (options.control.threads > 0 || std::getenv("OMP_NUM_THREADS") != nullptr) return options.control.threads;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  return std::max(1, CPU_COUNT(&allowed) / std::max(1, local_ranks));
}

kernels::GemmSearch gemm_search(const io::RunOptions& options) {
  const bool measures = options.control.gemm_tuning == "measure";
  return {measures ? kernels::GemmTuning::Measure : kernels::GemmTuning::Off, options.control.gemm_cache,
          60 * options.control.distributed_timeout_min};
}

RunDevice::RunDevice(const comm::MpiSession& session, const std::string& name, int threads,
                     const kernels::GemmSearch& search) {
  if (name == "cpu") {
    cpu_ = kernels::make_cpu_device({threads});
    return;
  }
  const auto module = name == "cuda" ? kernels::CudaModule::Cuda : kernels::CudaModule::Emulated;
  kernels::CudaDeviceOptions options;
  options.local_rank = session.local_rank();
  options.gemm_search = search;
  options.log = [first = session.rank() == 0](const std::string& text) {
    spdlog::log(first ? spdlog::level::info : spdlog::level::debug, "--device cuda: {}", text);
  };
  discrete_ = kernels::make_cuda_device(options, module);
  if (session.size() > 1) groups_ = comm::make_device_groups(*discrete_, module);
}

MemoryProvider& RunDevice::memory(const io::RunOptions& options, comm::ProcessGrid& grid) const {
  if (!discrete_) return grid.memory();
  return options.control.use_nccl_ub && groups_ ? groups_->registered_memory() : discrete_->memory();
}

std::string RunDevice::describe() const {
  if (!discrete_) return cpu_->name();
  return discrete_->describe() + (groups_ ? "; " + groups_->describe() : "");
}

}  // namespace triax::train

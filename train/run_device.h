// The device of a run, as --device names it, and what carries tensors of its memory between ranks.
#pragma once

#include <memory>
#include <string>

#include "comm/device_groups.h"
#include "comm/mpi_session.h"
#include "comm/process_grid.h"
#include "io/run_options.h"
#include "kernels/cuda_loader.h"
#include "kernels/device.h"

namespace triax::train {

/// --threads, else OMP_NUM_THREADS, else the cores that this process may use shared by the ranks of the host.
int threads_of(const io::RunOptions& options, int local_ranks);

/// --gemm-tuning and --gemm-cache.
kernels::GemmSearch gemm_search(const io::RunOptions& options);

class RunDevice {
 public:
  /// name: cpu, cuda, cuda-emulated. threads: of the CPU device. Loads the CUDA module for the latter two; of several
  /// GPUs takes the one of this rank's number on its host.
  RunDevice(const comm::MpiSession& session, const std::string& name, int threads,
            const kernels::GemmSearch& search = {});
  kernels::Device& get() const { return discrete_ ? *discrete_ : *cpu_; }
  kernels::DiscreteDevice* discrete() const { return discrete_.get(); }
  /// Null where tensors lie in the host's memory, or there is one rank.
  comm::DeviceGroups* groups() const { return groups_.get(); }
  /// Where a run's tensors lie: the device's memory, registered with the groups where --use-nccl-ub asks for that
  /// (and there are any); of the CPU, memory that the host's ranks share. To be asked once the grid is made.
  MemoryProvider& memory(const io::RunOptions& options, comm::ProcessGrid& grid) const;
  /// "cpu", or what the GPU is, NCCL's version and settings.
  std::string describe() const;

 private:
  std::unique_ptr<kernels::Device> cpu_;
  std::unique_ptr<kernels::DiscreteDevice> discrete_;
  std::unique_ptr<comm::DeviceGroups> groups_;
};

}  // namespace triax::train

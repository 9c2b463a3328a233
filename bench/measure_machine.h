// `triax bench all`: one description of this machine, measured by all ranks at once, for the cost model to read.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/hardware.h"
#include "bench/kernel_tables.h"
#include "comm/mpi_session.h"
#include "kernels/cuda_loader.h"

namespace triax::bench {

struct MachineBench {
  std::string name = "here";
  std::string device = "cpu";  ///< cuda, cuda-emulated: one GPU for each rank
  kernels::GemmSearch search;  ///< of a GPU's products (--gemm-tuning)
  bool registered = false;     ///< GPU memory of collectives is registered with NCCL
  bool links = true;           ///< false: no collectives, for one rank; a link is then assumed
  std::string directory;       ///< for checkpoints, which are removed again; empty: they are not measured
  double budget_s = 60;
  std::vector<DType> dtypes{DType::Float32, DType::BFloat16};
  std::vector<KernelPoint> kernels;             ///< the same of the other kernels
  std::vector<GemmPoint> shapes;                ///< measured before those of the plan: a model's own
  int64_t most_bytes = 0;                       ///< of a collective; 0: 64 MiB, on GPUs 256 MiB, emulated 64 KiB
  std::function<void(const std::string&)> say;  ///< progress; may be empty
};

/// Collective over all ranks, at least two unless links are left out. What the budget did not allow is left out, coarse
/// sizes last; `left_out` in the environment says how many points.
Hardware measure_machine(comm::MpiSession& session, const MachineBench& bench);

}  // namespace triax::bench

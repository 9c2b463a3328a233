// What --device cuda cannot do, or does in another way.
#include "io/options/fault_list.h"
#include "io/options/validate.h"

namespace triax::io {

namespace {

void check_gpu_options(const RunControl& control, FaultList& faults) {
  if (control.device != "cpu") return;
  const char* const leave_out = "--device cuda, or leave it out";
  if (control.use_nccl_ub)
    faults.add("use-nccl-ub", "true", "registers memory of GPUs, and --device is cpu", leave_out);
  if (control.gemm_tuning != "off") {
    faults.add("gemm-tuning", control.gemm_tuning, "times algorithms of GPUs, and --device is cpu",
               "--device cuda, or --gemm-tuning off");
  }
  if (!control.gemm_cache.empty()) {
    faults.add("gemm-cache", control.gemm_cache, "holds algorithms of GPUs, and --device is cpu", leave_out);
  }
  if (control.enable_cuda_graph) faults.add("enable-cuda-graph", "true", "the CPU launches nothing", leave_out);
}

}  // namespace

std::vector<std::string> gpu_option_faults(const RunControl& control) {
  FaultList faults;
  check_gpu_options(control, faults);
  return faults.take();
}

void check_device(const RunOptions& options, FaultList& faults) {
  const RunControl& control = options.control;
  check_gpu_options(control, faults);
  if (control.device == "cpu") return;
  if (control.gemm_tuning == "measure" && control.gemm_cache.empty()) {
    faults.add("gemm-tuning", "measure", "needs a file by which all ranks choose alike",
               "--gemm-cache FILE, or --gemm-tuning off");
  }
  const ParallelOptions& p = options.parallel;
  const auto refuse = [&](const std::string& why, const std::string& legal) {
    faults.add("device", control.device, why, legal);
  };
  if (control.precision == Precision::Fp64) refuse("does not compute in fp64", "--device cpu, or --bf16, fp32, fp16");
  if (control.clock == "virtual") refuse("has no virtual time", "--clock real, or --device cpu");
  if (!p.collective_algorithm.empty()) {
    refuse("leaves the choice of --collective-algorithm to NCCL (NCCL_ALGO)", "--device cpu, or leave it out");
  }
  // Two groups one after the other on the same values: not ordered between their streams yet.
  if (p.zero_shard_group > 0 || p.zero_hpz > 1) {
    refuse("does not shard over a part of the dp ranks", "--device cpu, or no --zero-shard-group and hpZ");
  }
  if (p.fixed_reduction_order) {
    refuse("sums between ranks in an order of NCCL's", "--device cpu, or leave out the fixed order of sums");
  }
}

}  // namespace triax::io

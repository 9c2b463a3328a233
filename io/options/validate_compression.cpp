#include "base/error.h"
#include "io/options/fault_list.h"

namespace triax::io {

void check_compression(const RunOptions& options, int64_t dp, FaultList& faults) {
  using comm::CompressionMethod;
  const CompressionMethod method = options.parallel.compression.method;
  if (method == CompressionMethod::None) return;
  const std::string name(comm::name_of(method));
  if (options.parallel.zero_stage > 1) {
    faults.add("grad-compression", name, "its residuals need whole gradients, which --zero-stage 2 and 3 do not keep",
               "--zero-stage 0 or 1");
  }
  const int64_t group = options.parallel.zero_shard_group;
  if (options.parallel.zero_stage == 1 && group > 0 && group != dp) {
    faults.add("grad-compression", name,
               fmt::format("sums over all {} dp ranks at once, not over shard groups of {}", dp, group),
               fmt::format("--zero-shard-group {}, or --zero-stage 0", dp));
  }
  if (options.parallel.grad_sync == GradSync::ParameterServer) {
    faults.add("grad-compression", name, "codes the sums over dp, which a parameter server does not take",
               "--grad-sync all-reduce, or --grad-compression none");
  }
  if (options.control.precision == Precision::Fp16) {
    faults.add("grad-compression", name,
               "with --fp16 a change of the loss scale or an overflow would spoil what is carried over",
               "--bf16, or --grad-compression none");
  }
  if (method == CompressionMethod::OneBitAdam) {
    if (options.optimizer.kind != OptimizerKind::Adam) {
      faults.add("grad-compression", name, "is a form of Adam",
                 "--optimizer adam, or topk, powersgd, qsgd, int8, bf16");
    }
    if (options.parallel.compression.warmup() == 0) {
      faults.add("grad-compression-warmup-steps", 0, "1-bit Adam learns its second moment in the warm-up",
                 "a fifth of the run or so");
    }
    if (options.parallel.compression.error_feedback == false) {
      faults.add("grad-compression", name, "does not converge without error feedback",
                 "--grad-compression-error-feedback");
    }
  }
}

}  // namespace triax::io

// One call of a kernel of kernels::Device at one size, with operands where training has them: what the tables of
// hw.json are measured with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/hardware.h"
#include "bench/operands.h"

namespace triax::bench {

/// All names of KernelPoint::kernel.
const std::vector<std::string>& kernel_names();

/// C[m,n] (+)= A B in the layout; on a device that works while the host goes on, given to it alone: synchronize() of
/// the device is TimingOptions::settle. C has the dtype; accumulating, fp32 (fp64 under fp64).
std::function<void()> gemm_call(Operands& operands, const GemmPoint& shape);

/// The kernel at [rows, cols]. Attention runs `heads` heads of one sample (KernelPoint::time_s is per head).
/// ConfigError for a name that is not known.
std::function<void()> kernel_call(Operands& operands, const KernelPoint& shape, int64_t heads);

/// Length of the sequence of an attention kernel.
int64_t positions_of(const KernelPoint& shape);

/// Heads that one call of an attention kernel runs, so that it takes about as long as in training; 1 for all others.
int64_t heads_of_call(const KernelPoint& shape, const kernels::Device& device);

/// Floating-point operations of one call: 2mnk; attention 4 (backward 10) d s (s + 1) / 2 of the causal half per head;
/// 0 for kernels that memory bounds.
double flops_of(const GemmPoint& shape);
double flops_of(const KernelPoint& shape);
/// Bytes that one call reads and writes at least once.
double bytes_of(const KernelPoint& shape);
double bytes_of(const GemmPoint& shape);

}  // namespace triax::bench

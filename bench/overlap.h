// How much a GEMM and a collective slow each other when both run: what overlap of communication really hides.
#pragma once

#include "bench/operands.h"
#include "bench/timing.h"
#include "comm/process_grid.h"

namespace triax::bench {

/// Of one size of message, beside GEMMs that together take at least as long.
struct OverlapRow {
  int64_t bytes = 0;         ///< all_reduce of fp32, nccl-tests' size
  double gemm_s = 0;         ///< all GEMMs alone
  double collective_s = 0;   ///< all_reduce alone
  double both_s = 0;         ///< from the start until both are done
  double gemm_beside_s = 0;  ///< the GEMMs, with the all_reduce under way
  double collective_beside_s = 0;
  /// Slow-down factors: 1 where the other costs nothing.
  double gemm_slowdown() const { return gemm_s > 0 ? gemm_beside_s / gemm_s : 1; }
  double collective_slowdown() const { return collective_s > 0 ? collective_beside_s / collective_s : 1; }
  /// Share of the all_reduce that the GEMMs hid: 1 all, 0 none (what it takes away from them counts as not hidden).
  double hidden() const;
};

/// The dp group of the grid (its communication thread) while this thread multiplies [size, size] matrices of `dtype`.
/// On the operands' device, where that has memory of its own and the grid its groups: the all_reduce on the group's
/// stream while the compute stream multiplies; times by events, that of the all_reduce beside GEMMs on its own stream.
/// Collective over the dp group.
OverlapRow measure_overlap(comm::ProcessGrid& grid, Operands& operands, Arena& arena, DType dtype, int64_t size,
                           int64_t bytes, int repeats);

}  // namespace triax::bench

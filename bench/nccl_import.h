// nccl-tests' results as collectives of hw.json, so that owners of clusters need not measure again: its text and its
// JSON (-J), and those of `triax bench coll`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/hardware.h"

namespace triax::bench {

/// What the file does not say and the user must: older text names neither the operation nor the ranks.
struct ImportHints {
  std::optional<comm::Operation> operation;
  int ranks = 0;  ///< 0: from the file
  int nodes = 0;
};

/// Out-of-place times, in place where there are no others; with several algorithms the fastest of a size. Lines with
/// wrong elements are refused. Throws ConfigError naming file and line (or key) for what is no such result, or when
/// operation or ranks are missing.
std::vector<CollectivePoint> import_nccl(const std::string& text, const std::string& where, const ImportHints& hints);

/// Replaces the points of the same operation, ranks, nodes and dtype, and keeps the others. Links that are assumed or
/// absent get latency and bandwidth from all_reduce: the shortest time / steps, and the largest busbw.
void merge(Hardware& hardware, const std::vector<CollectivePoint>& points, const std::string& source);

/// "all_reduce_perf", "AllReduce", "all_reduce": nullopt for what is none of the seven.
std::optional<comm::Operation> operation_named(const std::string& name);

}  // namespace triax::bench

// What `triax bench coll` is asked: nccl-tests' flags and its own.
#pragma once

#include <string>
#include <vector>

#include "apps/entry_makers.h"
#include "bench/collectives.h"

namespace triax::apps {

struct CollRequest {
  bench::CollectiveBench bench;
  std::vector<std::string> groups;  ///< of a layout, at once; empty: all ranks, or --split
  comm::GridShape layout;           ///< of --groups; data is derived
  int nodes = 0;                    ///< the ranks must stand on that many; 0: any
  std::string device = "cpu";       ///< cpu, cuda, cuda-emulated
  bool registered = false;          ///< --use-nccl-ub
  Format format = Format::Table;
  bool help = false;
  std::string help_text;
};

/// Throws ConfigError with option, value and rule.
CollRequest parse_coll(const std::vector<std::string>& args);

}  // namespace triax::apps

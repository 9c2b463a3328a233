// What-if questions about a machine: the same description with other numbers.
#pragma once

#include <map>
#include <string>

#include "bench/hardware.h"
#include "parallel/time_model.h"

namespace triax::plan {

struct WhatIf {
  std::map<std::string, double> bandwidth;  ///< factor by link name: "nvlink", "infiniband" or short "ib"
  double flops = 1;                         ///< factor of all matrix products and attention
  bool asked() const { return flops != 1 || !bandwidth.empty(); }
};

/// From 0.001 to 1000: no machine is meant beyond, and times would leave the range of picoseconds.
bool is_factor(double value);
/// "nvlink=2,infiniband=0.5". Throws ConfigError naming the word and the rule.
std::map<std::string, double> parse_bandwidth_factors(const std::string& text);

/// Peaks, throughputs and measured times scaled. Of a measured time only what exceeds the smallest of its series
/// (operation, ranks, nodes) is bandwidth and shrinks by the factor: latencies stay. Changed constants say so in their
/// source. Throws ConfigError for a link that the machine does not have, naming those it has.
bench::Hardware scaled(const bench::Hardware& hardware, const WhatIf& what_if);

}  // namespace triax::plan

// Two descriptions of machines, number by number.
#pragma once

#include <string>
#include <vector>

#include "bench/hardware.h"

namespace triax::bench {

/// A number of both files, or of one (the other is 0). Points of tables are summarised: the middle and the worst ratio.
struct Difference {
  std::string what;            ///< "gemm bf16 TN", "all_reduce of 2 ranks on 1 node(s)", "constant queue_s"
  double a = 0, b = 0;         ///< speeds (FLOP/s, bytes/s), or the value of a constant; of tables the geometric mean
  double ratio = 0;            ///< b / a; of tables the median over the points that both have
  double least = 0, most = 0;  ///< of the ratios of single points
  int points = 0;              ///< that both have; 0: a single number
};

/// Speeds first by name; ratios above 1: b is faster. Tables compare points of equal size only.
std::vector<Difference> compare(const Hardware& a, const Hardware& b);

}  // namespace triax::bench

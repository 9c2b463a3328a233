// The figures of a machine's description, each with its share of what the same machine does at best.
#pragma once

#include <string>
#include <vector>

#include "bench/hardware.h"

namespace triax::bench {

struct Figure {
  std::string what;   ///< "gemm bf16 NT", "layer_norm_forward bf16", "all_reduce fp32, 8 ranks on 1 node(s)"
  std::string shape;  ///< the size that it holds for
  double value = 0;
  std::string unit;  ///< "TFLOP/s", "GB/s", "us"
  double share = 0;  ///< 0: of nothing
  std::string of;    ///< "best gemm", "copy", "link"
};

/// The best GEMM of each type and layout against the type's best; each other kernel at its largest size against the
/// memory's copy, attention against the best GEMM; each collective's busbw at its largest size against its link, and
/// its time at the smallest; constants that are times or speeds. Of what was measured alone.
std::vector<Figure> figures_of(const Hardware& hardware);

}  // namespace triax::bench

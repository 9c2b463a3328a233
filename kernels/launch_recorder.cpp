#include "kernels/launch_recorder.h"

#include <fmt/format.h>

namespace triax::kernels {

std::string describe(const RecorderCounts& counts) {
  return fmt::format(
      "CUDA graphs of rank 0: {} made, {} held; {} of {} passes replayed; {} launches of graphs with {} operations, {} "
      "operations of passes launched one by one",
      counts.made, counts.graphs, counts.replayed_passes, counts.passes, counts.launches, counts.graph_operations,
      counts.single_operations);
}

}  // namespace triax::kernels

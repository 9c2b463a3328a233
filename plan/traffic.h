// Bytes that a step sends, by axis of the grid and by link of the machine: from the program, the shard plan and the
// layout, before anything runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/hardware.h"
#include "io/run_options.h"
#include "parallel/program.h"

namespace triax::plan {

struct Traffic {
  double tensor = 0, pipeline = 0, data = 0;  ///< all ranks together, per step
  /// The same bytes by the innermost link whose domain holds both ends, collectives as rings. Innermost first.
  std::vector<std::pair<std::string, double>> by_link;
  double total() const { return tensor + pipeline + data; }
};

/// Tensor parallel, per layer and micro-batch: 2 all-reduces of bsh elements forward, 2 backward, 2 for a layer that is
/// recomputed in full (sequence parallelism: as many all-gathers and reduce-scatters of the same volume); n ranks send
/// 2(n-1)/n of an all-reduce. Embedding, head and loss: 2 all-reduces of bsh, 3 of bs states. Data parallel:
/// train::data_traffic. Pipeline: messages of the program. Gradient compression is not counted.
Traffic traffic_of(const io::RunOptions& options, const bench::Hardware& hardware, const parallel::Program& program,
                   int64_t message_bytes);

}  // namespace triax::plan

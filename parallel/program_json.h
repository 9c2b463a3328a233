// A program with everything that its ops carry, for other programs to read.
#pragma once

#include <string>

#include "parallel/program.h"

namespace triax::parallel {

/// {"schema": "triax-program", "version": 1, "program_hash", "schedule", "pipeline", "chunks", "num_microbatches",
/// "stages": [{"stage", "position", "chunk", "layers": [begin, end]}], "positions": [[{"name", "kind", "chunk",
/// "micro_batch", "stream", "peer"?, "match"?, "bucket"?, "cost_key", "depends_on": [[position, op]], "memory":
/// [{"effect", "tensor", "stage", "micro_batch"}]}]]}; one op per line.
std::string json_of(const Program& program);

}  // namespace triax::parallel

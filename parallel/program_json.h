// A program with everything that its ops carry, for other programs to read.
#pragma once

#include <string>

#include "parallel/program.h"

namespace triax::parallel {

/// {"schema": "triax-program", "version": 1, "program_hash", "schedule", "pipeline", "chunks", "num_microbatches",
/// "stages": [{"stage", "position", "chunk", "layers": [begin, end]}], "positions": [[{"name", "kind", "chunk",
/// "micro_batch", "stream", "peer"?, "match"?, "bucket"?, "cost_key", "depends_on": [[position, op]], "memory":
/// [{"effect", "tensor", "stage", "micro_batch"}], "inside"?: [{"kind", "block"?, "pass"?, "unit"?}]}]], "blocks"?:
/// [[{"units", "gathered"}]]}; one op per line. "inside" (unit_ops()) and "blocks" (of every position) only with
/// Inside::Show, where the program shards weights or gradients inside of ops.
enum class Inside { Hide, Show };
std::string json_of(const Program& program, Inside inside = Inside::Hide);

}  // namespace triax::parallel

// Schedules in the action syntax of PyTorch's pipelining: one row per rank, cells "<stage><op><microbatch>" in order,
// for example 0F3 (forward), 2I0 (input gradient), 2W0 (weight gradient), 1B2 (whole backward).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/schedule.h"

namespace triax::parallel {

/// Reads such a file into schedule options (kind Csv: pipeline, chunks, micro-batches, ops and placement are filled).
/// Rows are positions; a rank holds the stages that its row names, its chunks in ascending order of stage. Empty cells,
/// empty lines and lines that begin with '#' are skipped; so are SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD and
/// REDUCE_GRAD actions, since the passes insert them again. The order is not judged here: check() does that on the
/// program. `name` is the file's, for messages. Throws ConfigError with row and column (from 1) for a cell that is no
/// action, a stage on two rows, rows of unequally many stages, stages or micro-batches that are not 0, 1, 2, ...
ScheduleOptions parse_csv_schedule(std::string_view text, const std::string& name);

/// Whether messages and gradient reductions are written beside the compute ops.
enum class CsvActions { Compute, All };

/// The program as such a file. parse_csv_schedule() gives its compute order and placement back.
std::string csv_of(const Program& program, CsvActions actions);

}  // namespace triax::parallel

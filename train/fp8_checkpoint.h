// The history of fp8 scaling in checkpoints: kind fp8_amax, under the name of the layer's (first) weight, [rows, 3]:
// the largest |input|, |weight| and |gradient of the output| of past steps, the newest first. The same in every layout.
#pragma once

#include <vector>

#include "comm/process_grid.h"
#include "io/checkpoint/piece.h"
#include "io/checkpoint/reader.h"
#include "parallel/fp8.h"

namespace triax::train {

inline constexpr const char* kFp8Amax = "fp8_amax";

/// What this rank writes: the layers of its pipeline position, on the first of its tp and dp ranks. `rows` holds what
/// the pieces point to.
std::vector<io::Piece> fp8_pieces(const parallel::Fp8Scales& scales, const comm::GridCoord& coord,
                                  std::vector<std::vector<float>>& rows);

/// Fills the histories of the layers that this rank holds; returns how many the checkpoint lacks, which begin anew.
int64_t load_fp8(parallel::Fp8Scales& scales, io::CheckpointReader& reader);

}  // namespace triax::train

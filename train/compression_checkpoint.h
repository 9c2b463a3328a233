// The state of gradient compression in checkpoints. Kinds: grad_residual.dpD (what dp rank D did not send),
// server_residual, powersgd_q.tpT (the factor of tp rank T's part of a tensor, a tensor of its own shape).
#pragma once

#include <string>
#include <vector>

#include "comm/process_grid.h"
#include "io/checkpoint/piece.h"
#include "io/checkpoint/reader.h"
#include "train/gradient_compression.h"

namespace triax::train {

/// Views of what this rank writes: every element of a kind once (tp replica 0, not the tied copy).
std::vector<io::Piece> compression_pieces(const GradientCompression& compression, const parallel::ParameterStore& store,
                                          const comm::GridCoord& coord);

/// Fills the state from a checkpoint, whatever method, layout and number of dp ranks wrote it: residuals of dp ranks
/// that are gone are added to those that are left, so their sum stays. What the checkpoint lacks stays as it is: zero.
/// Returns how many tensors it lacks. Throws RunTimeError as the reader does.
int64_t load_compression(const GradientCompression& compression, const parallel::ParameterStore& store,
                         const comm::GridCoord& coord, int data_ranks, io::CheckpointReader& reader,
                         kernels::Device& device);

}  // namespace triax::train

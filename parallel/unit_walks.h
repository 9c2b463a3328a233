// What a chunk's op runs of its units, and which blocks of gradients a unit adds to: read by the expansion into unit
// ops and by their checker.
#pragma once

#include <vector>

#include "parallel/program.h"

namespace triax::parallel {

/// Empty for ops that run no units. Recompute as an op of its own is none of them either: the backward's walk already
/// runs the layers again.
const std::vector<UnitUse>& walk_of(const ChunkWalk& walk, OpKind kind);
bool holds(const PositionUnits::Block& block, int unit);
/// Whether this pass of a unit adds to gradients of the block.
bool adds_to(const PositionUnits::Block& block, const UnitUse& use);
/// Ops that read gradients of the whole step: every bucket must have been reduced before.
bool reads_gradients(OpKind kind);

}  // namespace triax::parallel

// Weights between the ranks' shards and a weights file.
#pragma once

#include <string>

#include "comm/process_grid.h"
#include "io/weights/weights_file.h"
#include "parallel/parameter.h"

namespace triax::io {

/// Name of the weights file in a --save or --load directory.
std::string weights_path(const std::string& directory);

/// Rank 0 writes the file; every element comes from one rank: dp 0, replica 0, not the tied copy. Shards travel in
/// slabs of at most 64 MiB, so rank 0 never holds the whole model. Collective over world; returns on all ranks when the
/// file is durable and visible. header.dtype must be the store's.
void save_weights(const std::string& path, const WeightsHeader& header, const parallel::ParameterStore& store,
                  comm::ProcessGrid& grid);

/// Fills `values` (host, fp32 or fp64, [numel of the store]) with this rank's parts, the tied copy and all replicas
/// included; padding stays as it is. Every rank reads for itself.
void load_weights(const WeightsReader& file, const parallel::ParameterStore& store, Tensor values);

}  // namespace triax::io

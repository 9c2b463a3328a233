// Copies of a checkpoint in other files: one plain file, or another number of shards.
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint/reader.h"

namespace triax::io {

/// One HDF5 file with the groups and names of the index, and contiguous datasets. Tensors of `kinds` (empty: all). The
/// file appears under its name only when it is complete. Throws RunTimeError; ConfigError when the file exists.
void export_hdf5(CheckpointReader& reader, const std::string& path, const std::vector<std::string>& kinds);

/// A step's directory in `directory` (and its tracker) with all tensors cut evenly over `shards` files. Any number of
/// ranks in any layout reads any number of shards; fewer files suit file systems that are slow to open them.
void reshard(CheckpointReader& reader, const std::string& directory, int shards);

}  // namespace triax::io

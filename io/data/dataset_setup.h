// Preparing and opening a run's datasets on all its ranks together.
#pragma once

#include "comm/communicator.h"
#include "io/data/dataset_builder.h"

namespace triax::io {

/// Whether this rank is the first of its node.
enum class NodeRole : uint8_t { Leader, Member };

/// Collective over `world`. World rank 0 builds the indices that are missing; then the leader of each other node looks
/// into its cache directory and builds there only if it does not see them (a directory that is not shared); then every
/// rank opens them. Ranks that wait meet once a second in an all-reduce of 8 bytes, so a build may take longer than the
/// deadline of `world`. When a rank fails, it throws its error, and all others a RunTimeError that says which one;
/// `request` is the same on all ranks.
Datasets set_up_datasets(const DatasetRequest& request, comm::Communicator& world, NodeRole role);

}  // namespace triax::io

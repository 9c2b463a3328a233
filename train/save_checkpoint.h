// One save on all ranks: shards, then the index, then the names, in the order that leaves a complete checkpoint at
// every moment.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "io/checkpoint/directory.h"
#include "io/checkpoint/header.h"
#include "io/checkpoint/piece.h"

namespace triax::train {

struct SaveJob {
  std::string directory;  ///< of --save
  io::CheckpointHeader header;
  std::vector<io::Piece> pieces;  ///< of this rank; host memory that does not change meanwhile
  std::vector<int> writer;        ///< of each rank: the rank that writes its pieces; writers write their own
  io::Retention retention;
  io::SaveHook hook;
  double patience_s = 600;  ///< of a rank whose writing does not get on
};

/// Of each rank, when each node (nodes[rank]) has `per_node` writers (0: all of its ranks): the ranks of a node form
/// that many runs, the first of each writes.
std::vector<int> choose_writers(const std::vector<int>& nodes, int per_node);

/// Collective over `all` (every rank), which nothing else may use meanwhile. Each writer: shard under the directory's
/// temporary name, flush, fsync, read back. Rank 0: index, checksums, fsync, rename, tracker, retention. Pieces of
/// ranks that do not write travel to their writer: their bytes, once. Throws on all ranks alike when any fails
/// (RunTimeError with the words of the first); the checkpoints before stay as they are.
void save_checkpoint(comm::Communicator& all, const SaveJob& job);

}  // namespace triax::train

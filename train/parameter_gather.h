// Weights over dp under ZeRO: what the owners have updated goes to all (stages 1 and 2, and what stays resident in 3);
// what is held in shards is whole while it is used (stage 3).
#pragma once

#include <memory>
#include <vector>

#include "base/memory.h"
#include "comm/compression/coded_gather.h"
#include "comm/process_grid.h"
#include "kernels/device.h"
#include "parallel/shard_plan.h"
#include "train/gradient_sync.h"

namespace triax::train {

/// psi = elements of a block in the weights' dtype. Operations run on dp's own thread; with Overlap::No they end before
/// the call returns.
class ParameterGather {
 public:
  ParameterGather(const parallel::ShardPlan& plan, parallel::ParameterStore& store, comm::ProcessGrid& grid,
                  kernels::Device& device, Arena& arena, Overlap overlap);

  /// From now on gather() sends int8 codes with one scale per `block_length` elements (qwZ, arXiv 2306.10209 section
  /// 3.1): every rank, the owner too, computes with what the code says; shards stay exact. Throws ConfigError on a
  /// device without codes.
  void quantize(int64_t block_length);
  /// From owned pieces to what each rank holds of the block: all-gather over replica() to shards (hpZ), then, where the
  /// block is resident, over shard(): (g-1)/g psi sent per rank.
  void refresh(int block);
  /// refresh() of all blocks that need it, in one order on all ranks, and waits.
  void refresh_all();
  /// Starts the all-gather over shard() of a block held in shards: (g-1)/g psi sent per rank; psi of memory,
  /// MemoryCategory::Communication.
  void gather(int block);
  /// Frees a gathered block; its parameters have no weights any more.
  void release(int block);
  /// Every block that is held in shards, whole.
  void gather_all();
  void release_all();
  /// Waits until the weights that the unit uses are there.
  void await(int unit);
  /// Waits for everything.
  void finish();

 private:
  struct State {
    std::vector<comm::Work> work;
    Buffer memory;   ///< of a gathered block
    Buffer message;  ///< its codes on the way
    bool pending = false;
  };
  void finish(State& state, const parallel::ShardBlock& block);
  void start(State& state, comm::Work work);

  const parallel::ShardPlan* plan_;
  parallel::ParameterStore* store_;
  comm::ProcessGrid* grid_;
  kernels::Device* device_;
  Arena* arena_;
  Overlap overlap_;
  std::unique_ptr<comm::CodedGather> coded_;
  std::vector<State> states_;                  ///< [block]
  std::vector<std::vector<int>> unit_blocks_;  ///< [unit]
};

/// Blocks that refresh() moves something for: all that are not stage 0, but for those held in shards without hpZ.
std::vector<int> refreshed_blocks(const parallel::ShardPlan& plan);

}  // namespace triax::train

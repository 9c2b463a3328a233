// Which gradients of this rank are summed over which ranks, read from the sharding specs alone, and the sums
// themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/memory.h"
#include "comm/process_grid.h"
#include "kernels/device.h"
#include "parallel/shard_plan.h"
#include "train/gradient_compression.h"

namespace triax::train {

/// Sums left out on purpose, so that the replica check can prove that it sees their lack (--inject
/// skip-sync:tp|tied|dp).
struct SkippedSync {
  bool tensor = false, tied = false, data = false;
};
/// Reads the skip-sync:X parts of an --inject text (parts separated by commas). Throws ConfigError for another X.
SkippedSync parse_skipped_sync(const std::string& inject);

/// Indices of parameters, per chunk.
struct SyncPlan {
  struct ChunkPlan {
    std::vector<size_t> tensor;       ///< GradientSum::Tensor: over tp
    std::vector<size_t> kv_replicas;  ///< GradientSum::KvReplicas: over the tp ranks that share KV heads
  };
  std::vector<ChunkPlan> chunks;
  std::vector<size_t> tied;    ///< over the first and last stage
  parallel::ShardPlan shards;  ///< blocks over dp
  bool any_partial() const;
};

/// From the specs; a tensor that is replicated over tp only in part must name KvReplicas. Places the flat arrays of the
/// store anew, as the blocks want them.
SyncPlan make_sync_plan(parallel::ParameterStore& store, int chunks, const parallel::ShardOptions& shards);
/// One line per tensor: name, shape, how it is cut, its sums, its block.
std::string describe(const SyncPlan& plan, const parallel::ParameterStore& store);

using parallel::FlatRange;

enum class Overlap { No, Yes };

/// Executes the plan, psi = elements of a block in the gradient's dtype, g ranks in shard(), R in replica().
/// Partial sums of a chunk travel packed, one all-reduce per group.
/// Stage 0: each block is all-reduced over dp, in place in the flat gradient: 2 (d-1)/d psi.
/// Stage 1: reduce-scattered over shard() in place, its piece all-reduced over replica(), once in a step.
/// Stages 2 and 3: collected in a bucket in every micro-batch, reduce-scattered over shard(), (g-1)/g psi (and then
/// over replica() under hpZ), and added to the piece this rank owns; without hpZ that is all-reduced over replica()
/// once. All of it runs on dp's own thread.
class GradientSync {
 public:
  GradientSync(SyncPlan plan, parallel::ParameterStore& store, comm::ProcessGrid& grid, kernels::Device& device,
               Arena& arena, Overlap overlap, const SkippedSync& skipped);

  const SyncPlan& plan() const { return plan_; }
  /// From now on blocks are summed over dp by `compression`, in the steps in which it is active.
  void compress(GradientCompression* compression) { compression_ = compression; }
  /// From now on nothing is summed over dp here: whole gradients go to a parameter server.
  void leave_data_to_server() { skipped_.data = true; }
  /// Gradients of a new step start from zero.
  void start_step();
  /// All-reduce over tp (and the KV replicas) of the chunk's partial gradients: 2 (t-1)/t of their bytes each.
  void sum_tensor_partial(int chunk);
  /// All-reduce over the first and last stage of the word embedding's gradient, what this rank has of it.
  void sum_tied();
  /// Stages 0 and 1, and the sum over replicas of 2 and 3: starts (Overlap::No: and ends) the reduction of one block;
  /// nothing where the backward pass has started it already.
  void reduce(int block);
  /// Waits for every reduce().
  void finish();

  /// Stages 2 and 3.
  bool collects() const { return plan_.shards.options.shards_gradients(); }
  /// Stages 2 and 3: the gradients of the block's parameters live in a zeroed bucket from now on.
  void collect(int block);
  /// Starts the reduction of that bucket; the parameters have no gradients any more.
  void start_reduction(int block);
  /// Waits for it, adds to the owned piece, frees the bucket.
  void finish_reduction(int block);

 private:
  struct Bucket {
    Buffer memory;
    std::vector<comm::Work> work;
    bool first = true;  ///< of this step
  };
  /// The parts of a parameter's gradient that lie within `ranges`.
  std::vector<Tensor> parts_of(size_t parameter, const std::vector<FlatRange>& ranges) const;
  /// What the sums over tp and tied copies take of it: what this rank owns, or all of it while gradients stay local.
  const std::vector<Tensor>& summed_parts(size_t parameter) const;
  void sum_packed(const std::vector<size_t>& indices, comm::Communicator& group, Tensor pack);
  int64_t longest(const std::vector<size_t> SyncPlan::ChunkPlan::*list) const;
  void start(comm::Work work);
  const parallel::ShardBlock& block_at(int block) const { return plan_.shards.blocks[static_cast<size_t>(block)]; }

  SyncPlan plan_;
  parallel::ParameterStore* store_;
  comm::ProcessGrid* grid_;
  kernels::Device* device_;
  Arena* arena_;
  Overlap overlap_;
  SkippedSync skipped_;
  GradientCompression* compression_ = nullptr;
  Buffer tensor_buffer_, kv_buffer_;
  Tensor tensor_pack_, kv_pack_;
  std::vector<comm::Work> in_flight_;
  std::vector<Bucket> buckets_;                                ///< [block], stages 2 and 3
  std::vector<char> started_;                                  ///< [block]: reduce() of this step
  std::vector<std::vector<Tensor>> held_parts_, owned_parts_;  ///< [parameter]: parts_of() what is held and owned
};

}  // namespace triax::train

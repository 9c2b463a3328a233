// Which gradients of this rank are summed over which ranks, read from the sharding specs alone, and the sums
// themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/memory.h"
#include "comm/process_grid.h"
#include "kernels/device.h"
#include "parallel/parameter.h"

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
  std::vector<size_t> tied;                       ///< over the first and last stage
  std::vector<parallel::GradientBucket> buckets;  ///< over dp
  bool any_partial() const;
};

/// From the specs; a tensor that is replicated over tp only in part must name KvReplicas. bucket_size in elements.
SyncPlan make_sync_plan(const parallel::ParameterStore& store, int chunks, int64_t bucket_size);
/// One line per tensor: name, shape, how it is cut, its sums, its bucket.
std::string describe(const SyncPlan& plan, const parallel::ParameterStore& store);

enum class Overlap { No, Yes };

/// Executes the plan. Partial sums of a chunk travel packed, one all-reduce per group; buckets are all-reduced in place
/// in the flat gradient by dp's own thread, and waited for by finish().
class GradientSync {
 public:
  GradientSync(SyncPlan plan, parallel::ParameterStore& store, comm::ProcessGrid& grid, kernels::Device& device,
               Arena& arena, Overlap overlap, const SkippedSync& skipped);

  const SyncPlan& plan() const { return plan_; }
  /// All-reduce over tp (and the KV replicas) of the chunk's partial gradients: 2 (t-1)/t of their bytes each.
  void sum_tensor_partial(int chunk);
  /// All-reduce over the first and last stage of the word embedding's gradient, whole tensor.
  void sum_tied();
  /// Starts (Overlap::No: and ends) the all-reduce of one bucket over dp.
  void reduce(int bucket);
  /// Waits for every bucket.
  void finish();

 private:
  void sum_packed(const std::vector<size_t>& indices, comm::Communicator& group, Tensor pack);
  int64_t longest(const std::vector<size_t> SyncPlan::ChunkPlan::*list) const;
  SyncPlan plan_;
  parallel::ParameterStore* store_;
  comm::ProcessGrid* grid_;
  kernels::Device* device_;
  Overlap overlap_;
  SkippedSync skipped_;
  Buffer tensor_buffer_, kv_buffer_;
  Tensor tensor_pack_, kv_pack_;
  std::vector<comm::Work> in_flight_;
};

}  // namespace triax::train

// How the flat arrays of a rank are cut into blocks, and the blocks over its dp ranks: ZeRO stages 0 to 3 (Rajbhandari
// et al. 2019, arXiv 1910.02054), hybrid sharding (Zhao et al. 2023, arXiv 2304.11277 section 3.2.2) and hpZ (Wang et
// al. 2023, arXiv 2306.10209 section 3.2). Pure functions of the declared parameters and the options.
// d = dp ranks, g = ranks of a shard group, R = d / g replicas of a shard.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/parameter.h"

namespace triax::parallel {

/// Whether optimizer states are cut over the shard group alone, or over all of dp with weights gathered inside the
/// group (hpZ).
enum class StateSharding { ShardGroup, AllOfData };
/// Whether backward passes are split, so that a unit's gradients are complete in two steps.
enum class BackwardPasses { Whole, Split };

struct ShardOptions {
  int stage = 0;     ///< 0..3
  int group = 1;     ///< g
  int replicas = 1;  ///< R
  StateSharding states = StateSharding::ShardGroup;
  int64_t bucket_size = 0;            ///< elements; stages 0 to 2
  int64_t persistence_threshold = 0;  ///< stage 3: groups of fewer elements stay resident
  BackwardPasses backward = BackwardPasses::Whole;

  /// Gradients live in buckets and are reduced in every micro-batch into this rank's part.
  bool shards_gradients() const { return stage >= 2; }
  /// Pieces of a block in all: g, or d under hpZ.
  int pieces() const { return states == StateSharding::AllOfData ? group * replicas : group; }
};

/// A contiguous flat range that is reduced, gathered and cut as one; a multiple of pieces() * kParameterAlignment.
struct ShardBlock {
  FlatRange range;
  int chunk = 0;
  bool gathered = false;  ///< its weights are whole only while used (stage 3)
  GradientPhase phase = GradientPhase::Weight;
  std::vector<int> units;  ///< whose parameters it holds, ascending
};

struct ShardPlan {
  ShardOptions options;
  std::vector<ShardBlock> blocks;  ///< last units first: the order in which the backward pass completes them

  /// Part of a block that the rank with this index in the shard group holds between uses: g equal pieces.
  FlatRange shard_of(const ShardBlock& block, int shard) const;
  /// Part whose optimizer state the rank owns: the whole block (stage 0), its shard, or a piece of its shard (hpZ).
  FlatRange owned_of(const ShardBlock& block, int shard, int replica) const;
  /// owned_of() of all blocks, ascending; adjacent ones joined.
  std::vector<FlatRange> owned(int shard, int replica) const;
  /// Weights and gradients that have memory of their own.
  HeldRanges held(int shard, int replica) const;
};

/// Cuts and places. Stages 0 to 2: buckets of whole units of one chunk, of at least bucket_size elements. Stage 3: each
/// unit by itself, its small groups apart from the gathered ones. From stage 1 on a word embedding shared with another
/// stage is a block of its own (both stages cut it alike), in stages 2 and 3 also what a split backward completes in
/// different passes.
ShardPlan make_shard_plan(ParameterStore& store, const ShardOptions& options);

}  // namespace triax::parallel

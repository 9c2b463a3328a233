#include "parallel/shard_plan.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace triax::parallel {
namespace {

/// Units [first, last] of one chunk.
struct Bucket {
  int first = 0, last = 0;
  int64_t numel = 0;
};

std::vector<Bucket> bucket_units(const ParameterStore& store, const ShardOptions& options) {
  std::vector<int64_t> numel(store.units().size(), 0);
  for (const ParameterGroup& group : store.groups())
    numel[static_cast<size_t>(group.unit)] += store.padded_numel(group);
  const auto chunk = [&](int unit) { return store.units()[static_cast<size_t>(unit)].chunk; };
  std::vector<Bucket> buckets;
  for (int unit = static_cast<int>(numel.size()); unit-- > 0;) {
    const int64_t own = numel[static_cast<size_t>(unit)];
    const bool open = options.stage < 3 && !buckets.empty() && chunk(buckets.back().first) == chunk(unit) &&
                      buckets.back().numel < options.bucket_size;
    if (open) {
      buckets.back().first = unit;
      buckets.back().numel += own;
    } else {
      buckets.push_back({unit, unit, own});
    }
  }
  return buckets;
}

/// Groups with equal kinds share a block: (shared with another stage, phase, gathered).
using Kind = std::tuple<bool, GradientPhase, bool>;

Kind kind_of(const ParameterStore& store, const ParameterGroup& group, const ShardOptions& options) {
  const Parameter& p = store.at(group.first);
  if (!options.shards_gradients()) return {options.stage > 0 && p.tied, GradientPhase::Weight, false};
  const GradientPhase phase = options.backward == BackwardPasses::Split ? p.phase : GradientPhase::Weight;
  int64_t numel = 0;
  for (size_t i = group.first; i < group.first + group.count; ++i) numel += store.at(i).numel;
  const bool gathered = options.stage == 3 && options.group > 1 && numel >= options.persistence_threshold;
  return {p.tied, phase, gathered};
}

FlatRange piece(FlatRange range, int pieces, int index) {
  const int64_t size = range.size() / pieces;
  return {range.begin + size * index, range.begin + size * (index + 1)};
}

std::vector<FlatRange> joined(std::vector<FlatRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const FlatRange& a, const FlatRange& b) { return a.begin < b.begin; });
  std::vector<FlatRange> out;
  for (const FlatRange& range : ranges) {
    if (!out.empty() && out.back().end == range.begin) {
      out.back().end = range.end;
    } else {
      out.push_back(range);
    }
  }
  return out;
}

}  // namespace

ShardPlan make_shard_plan(ParameterStore& store, const ShardOptions& options) {
  ShardPlan plan;
  plan.options = options;
  std::vector<std::vector<size_t>> groups;  // of each block
  for (const Bucket& bucket : bucket_units(store, options)) {
    std::map<Kind, std::vector<size_t>> kinds;
    for (size_t g = 0; g < store.groups().size(); ++g) {
      const ParameterGroup& group = store.groups()[g];
      if (group.unit < bucket.first || group.unit > bucket.last) continue;
      kinds[kind_of(store, group, options)].push_back(g);
    }
    for (const auto& [kind, members] : kinds) {
      ShardBlock block;
      block.chunk = store.units()[static_cast<size_t>(bucket.first)].chunk;
      block.phase = std::get<GradientPhase>(kind);
      block.gathered = std::get<2>(kind);
      for (const size_t g : members) {
        const ParameterGroup& group = store.groups()[g];
        block.units.push_back(group.unit);
        block.units.insert(block.units.end(), group.users.begin(), group.users.end());
      }
      std::sort(block.units.begin(), block.units.end());
      block.units.erase(std::unique(block.units.begin(), block.units.end()), block.units.end());
      plan.blocks.push_back(block);
      groups.push_back(members);
    }
  }
  // In memory the blocks ascend as the units do.
  std::reverse(groups.begin(), groups.end());
  const int pieces = options.stage == 0 ? 1 : options.pieces();
  std::vector<FlatRange> ranges = store.place(groups, kParameterAlignment * pieces);
  std::reverse(ranges.begin(), ranges.end());
  for (size_t b = 0; b < ranges.size(); ++b) plan.blocks[b].range = ranges[b];
  return plan;
}

FlatRange ShardPlan::shard_of(const ShardBlock& block, int shard) const {
  return options.stage == 0 ? block.range : piece(block.range, options.group, shard);
}

FlatRange ShardPlan::owned_of(const ShardBlock& block, int shard, int replica) const {
  const FlatRange own = shard_of(block, shard);
  const bool again = options.stage > 0 && options.states == StateSharding::AllOfData;
  return again ? piece(own, options.replicas, replica) : own;
}

std::vector<FlatRange> ShardPlan::owned(int shard, int replica) const {
  std::vector<FlatRange> ranges;
  for (const ShardBlock& block : blocks) ranges.push_back(owned_of(block, shard, replica));
  return joined(std::move(ranges));
}

HeldRanges ShardPlan::held(int shard, int replica) const {
  HeldRanges held;
  for (const ShardBlock& block : blocks) {
    held.weights.push_back(block.gathered ? shard_of(block, shard) : block.range);
    held.gradients.push_back(options.shards_gradients() ? owned_of(block, shard, replica) : block.range);
  }
  held.weights = joined(std::move(held.weights));
  held.gradients = joined(std::move(held.gradients));
  return held;
}

}  // namespace triax::parallel

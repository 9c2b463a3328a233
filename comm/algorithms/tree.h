// All-reduce along one binary tree, or along two that share the work (Sanders, Speck, Traeff 2009: two-tree broadcast).
#pragma once

#include <vector>

#include "comm/algorithms/plan.h"

namespace triax::comm {

/// Place of a rank in a binary tree.
struct TreeNode {
  int parent = -1;  ///< -1: the root
  std::vector<int> children;
};

/// The in-order tree of n ranks: even ranks are its leaves. Height floor(log2 n).
TreeNode tree_node(int rank, int size);
/// Its mirror image (n even) or shift by one (n odd): no inner rank of the first is an inner rank here.
TreeNode second_tree_node(int rank, int size);
int tree_root(int size);
int second_tree_root(int size);

/// The sum goes up to the root and down again, in steps of `chunk` elements; the way down begins while the way up still
/// runs. SumOrder::Ranks: everyone's own values go straight to the root.
Plan tree_all_reduce(SumOrder order, const PlanGroup& group, int64_t count, int64_t chunk);
/// The first half of the buffer along the first tree, the second along the second.
Plan double_tree_all_reduce(SumOrder order, const PlanGroup& group, int64_t count, int64_t chunk);

}  // namespace triax::comm

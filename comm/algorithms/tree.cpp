#include "comm/algorithms/tree.h"

#include <algorithm>

#include "base/error.h"

namespace triax::comm {
namespace {

/// Largest power of two that is at most x.
int power_below(int x) {
  int power = 1;
  while (power * 2 <= x) power *= 2;
  return power;
}

/// A tree over part of the buffer as one rank sees it.
struct Branch {
  TreeNode node;
  int root = 0;
  int tag = 0;  ///< upwards; downwards tag + 1
  Slice range;
  int lag = 0;  ///< steps that the way down stays behind the way up
};

Slice step_of(const Branch& branch, int64_t step, int64_t chunk) {
  const int64_t begin = std::min(branch.range.begin + step * chunk, branch.range.end);
  return {begin, std::min(begin + chunk, branch.range.end)};
}

void add_up(Plan& plan, const Branch& branch, SumOrder order, const PlanGroup& group, const Slice& s) {
  if (order == SumOrder::Ranks) {
    if (group.rank != branch.root) {
      plan.push_back({TransferKind::Send, branch.root, branch.tag, s.begin, s.end});
      return;
    }
    for (int r = 0; r < group.size; ++r) {
      if (r != group.rank) plan.push_back({TransferKind::RecvInput, r, branch.tag, s.begin, s.end});
    }
    plan.push_back({TransferKind::SumInputs, -1, 0, s.begin, s.end});
    return;
  }
  for (const int child : branch.node.children) {
    plan.push_back({TransferKind::RecvSum, child, branch.tag, s.begin, s.end});
  }
  if (branch.node.parent >= 0) plan.push_back({TransferKind::Send, branch.node.parent, branch.tag, s.begin, s.end});
}

void add_down(Plan& plan, const Branch& branch, const Slice& s) {
  const int tag = branch.tag + 1;
  if (branch.node.parent >= 0) plan.push_back({TransferKind::RecvCopy, branch.node.parent, tag, s.begin, s.end});
  for (const int child : branch.node.children) plan.push_back({TransferKind::Send, child, tag, s.begin, s.end});
}

Plan run_branches(const std::vector<Branch>& branches, SumOrder order, const PlanGroup& group, int64_t chunk) {
  ensure(chunk > 0, "tree_all_reduce: a step has at least one element");
  int64_t steps = 0;
  for (const Branch& b : branches) steps = std::max(steps, (b.range.size() + chunk - 1) / chunk + b.lag);
  Plan plan;
  for (int64_t step = 0; step < steps; ++step) {
    for (const Branch& branch : branches) {
      const Slice up = step_of(branch, step, chunk);
      if (up.size() > 0) add_up(plan, branch, order, group, up);
      if (step < branch.lag) continue;
      const Slice down = step_of(branch, step - branch.lag, chunk);
      if (down.size() > 0) add_down(plan, branch, down);
    }
  }
  return plan;
}

/// A chunk needs about twice the height of the tree to come back; the root turns it round at once.
int lag_of(const TreeNode& node, int size) {
  if (node.parent < 0) return 0;
  int height = 1;
  while ((1 << height) < size) ++height;
  return 2 * height;
}

Branch first_branch(const PlanGroup& group, const Slice& range) {
  const TreeNode node = tree_node(group.rank, group.size);
  return {node, tree_root(group.size), 0, range, lag_of(node, group.size)};
}

}  // namespace

TreeNode tree_node(int rank, int size) {
  ensure(rank >= 0 && rank < size, "tree_node: rank outside of the group");
  // Positions count from 1. The root of the positions (base, base + m] is base + the largest power of two <= m: below
  // it a full tree, above it the same rule again.
  TreeNode node;
  int base = 0;
  int m = size;
  int parent = 0;
  const int position = rank + 1;
  while (true) {
    const int power = power_below(m);
    const int root = base + power;
    if (position == root) {
      node.parent = parent - 1;
      if (power > 1) node.children.push_back(base + power_below(power - 1) - 1);
      if (m > power) node.children.push_back(root + power_below(m - power) - 1);
      return node;
    }
    parent = root;
    if (position < root) {
      m = power - 1;
    } else {
      base = root;
      m -= power;
    }
  }
}

int tree_root(int size) { return power_below(size) - 1; }

TreeNode second_tree_node(int rank, int size) {
  const bool mirrored = size % 2 == 0;
  const auto there = [&](int r) { return mirrored ? size - 1 - r : (r + size - 1) % size; };
  const auto back = [&](int r) { return mirrored ? size - 1 - r : (r + 1) % size; };
  TreeNode node = tree_node(there(rank), size);
  if (node.parent >= 0) node.parent = back(node.parent);
  for (int& child : node.children) child = back(child);
  return node;
}

int second_tree_root(int size) { return size % 2 == 0 ? size - 1 - tree_root(size) : (tree_root(size) + 1) % size; }

Plan tree_all_reduce(SumOrder order, const PlanGroup& group, int64_t count, int64_t chunk) {
  return run_branches({first_branch(group, {0, count})}, order, group, chunk);
}

Plan double_tree_all_reduce(SumOrder order, const PlanGroup& group, int64_t count, int64_t chunk) {
  const int64_t half = count / 2;
  const TreeNode second = second_tree_node(group.rank, group.size);
  return run_branches({first_branch(group, {0, half}),
                       {second, second_tree_root(group.size), 2, {half, count}, lag_of(second, group.size)}},
                      order, group, chunk);
}

}  // namespace triax::comm

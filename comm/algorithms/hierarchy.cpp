#include "comm/algorithms/hierarchy.h"

#include <algorithm>

#include "comm/algorithms/circle.h"

namespace triax::comm {
namespace {

Slice slice_of_piece(const Pieces& pieces, int member) {
  return {pieces.begin(member), pieces.begin(member) + pieces.count(member)};
}

/// Pieces of the members of `node` that belong to the column.
void append_column(const std::vector<int>& node, int column, int columns, const Pieces& pieces, Block& block) {
  for (size_t local = static_cast<size_t>(column); local < node.size(); local += static_cast<size_t>(columns)) {
    block.push_back(slice_of_piece(pieces, node[local]));
  }
}

/// Members of a node; column c owns the pieces of column c on all nodes, the rest own nothing.
Circle inside_circle(const std::vector<std::vector<int>>& nodes, int node, int me, int columns, const Pieces& pieces) {
  Circle circle;
  circle.members = nodes[static_cast<size_t>(node)];
  circle.me = me;
  circle.blocks.resize(circle.members.size());
  for (int c = 0; c < columns; ++c) {
    for (const auto& other : nodes) append_column(other, c, columns, pieces, circle.blocks[static_cast<size_t>(c)]);
  }
  return circle;
}

/// One member of each node; each owns the pieces of its column on its node.
Circle across_circle(const std::vector<std::vector<int>>& nodes, int node, int column, int columns,
                     const Pieces& pieces) {
  Circle circle;
  circle.me = node;
  for (const auto& other : nodes) {
    circle.members.push_back(other[static_cast<size_t>(column)]);
    append_column(other, column, columns, pieces, circle.blocks.emplace_back());
  }
  return circle;
}

}  // namespace

Hierarchy::Hierarchy(const PlanGroup& group) : rank_(group.rank) {
  std::vector<int> numbers;
  for (int member = 0; member < group.size; ++member) {
    const int number = group.node(member);
    auto found = std::find(numbers.begin(), numbers.end(), number);
    if (found == numbers.end()) {
      found = numbers.insert(numbers.end(), number);
      members_.emplace_back();
    }
    const auto node = static_cast<size_t>(found - numbers.begin());
    places_.push_back({static_cast<int>(node), static_cast<int>(members_[node].size())});
    members_[node].push_back(member);
  }
  size_t smallest = members_[0].size();
  for (const auto& members : members_) smallest = std::min(smallest, members.size());
  columns_ = static_cast<int>(smallest);
}

void Hierarchy::reduce_scatter(const Pieces& pieces, Plan& plan) const {
  const auto [node, local] = place(rank_);
  halving_reduce_scatter(inside_circle(members_, node, local, columns_, pieces), plan);
  const std::vector<int>& mine = on_node(node);
  if (local < columns_) {
    halving_reduce_scatter(across_circle(members_, node, local, columns_, pieces), plan);
    for (size_t other = static_cast<size_t>(local + columns_); other < mine.size();
         other += static_cast<size_t>(columns_)) {
      const Block block{slice_of_piece(pieces, mine[other])};
      add_transfers(plan, TransferKind::Send, mine[other], 1, {&block});
    }
  } else {
    const Block block{slice_of_piece(pieces, rank_)};
    add_transfers(plan, TransferKind::RecvCopy, mine[static_cast<size_t>(local % columns_)], 1, {&block});
  }
}

void Hierarchy::all_gather(const Pieces& pieces, Plan& plan) const {
  const auto [node, local] = place(rank_);
  const std::vector<int>& mine = on_node(node);
  if (local < columns_) {
    for (size_t other = static_cast<size_t>(local + columns_); other < mine.size();
         other += static_cast<size_t>(columns_)) {
      const Block block{slice_of_piece(pieces, mine[other])};
      add_transfers(plan, TransferKind::RecvCopy, mine[other], 2, {&block});
    }
    doubling_all_gather(across_circle(members_, node, local, columns_, pieces), plan);
  } else {
    const Block block{slice_of_piece(pieces, rank_)};
    add_transfers(plan, TransferKind::Send, mine[static_cast<size_t>(local % columns_)], 2, {&block});
  }
  doubling_all_gather(inside_circle(members_, node, local, columns_, pieces), plan);
}

std::vector<int64_t> Hierarchy::all_reduce_counts(int64_t count) const {
  const int64_t owners = int64_t{nodes()} * columns_;
  std::vector<int64_t> counts(places_.size(), 0);
  int64_t owner = 0;
  for (size_t member = 0; member < counts.size(); ++member) {
    if (!talks_across(static_cast<int>(member))) continue;
    counts[member] = count / owners + (owner < count % owners ? 1 : 0);
    ++owner;
  }
  return counts;
}

}  // namespace triax::comm

// Reduce-scatter inside the node, then across nodes; all-gather across, then inside: the slow links carry 1/G of the
// buffer each way.
#pragma once

#include <vector>

#include "comm/algorithms/plan.h"

namespace triax::comm {

/// The members of a group by node. With C members on the smallest node, the first C of each node form C columns, which
/// talk across nodes; member j of a node belongs to column j mod C.
class Hierarchy {
 public:
  explicit Hierarchy(const PlanGroup& group);
  int nodes() const { return static_cast<int>(members_.size()); }
  int columns() const { return columns_; }
  bool talks_across(int member) const { return place(member).local < columns_; }

  /// Afterwards this rank holds the sum of its own piece.
  void reduce_scatter(const Pieces& pieces, Plan& plan) const;
  void all_gather(const Pieces& pieces, Plan& plan) const;
  /// Pieces of an all-reduce: equal parts for those who talk across nodes, nothing for the others.
  std::vector<int64_t> all_reduce_counts(int64_t count) const;

 private:
  struct Place {
    int node = 0;
    int local = 0;
  };
  Place place(int member) const { return places_[static_cast<size_t>(member)]; }
  const std::vector<int>& on_node(int node) const { return members_[static_cast<size_t>(node)]; }

  int rank_;
  std::vector<std::vector<int>> members_;  ///< [node][local], group ranks
  std::vector<Place> places_;              ///< of each group rank
  int columns_ = 1;
};

}  // namespace triax::comm

#include "comm/algorithms/plan.h"

#include "base/error.h"
#include "comm/algorithms/circle.h"
#include "comm/algorithms/hierarchy.h"
#include "comm/algorithms/tree.h"

namespace triax::comm {
namespace {

Circle whole_circle(const PlanGroup& group, const Pieces& pieces) {
  Circle circle;
  circle.me = group.rank;
  for (int r = 0; r < group.size; ++r) {
    circle.members.push_back(r);
    circle.blocks.push_back({{pieces.begin(r), pieces.begin(r) + pieces.count(r)}});
  }
  return circle;
}

std::vector<int64_t> even_counts(int64_t count, int ranks) {
  std::vector<int64_t> counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(count / ranks + (r < count % ranks ? 1 : 0));
  return counts;
}

void append_reduce_scatter(Algorithm algorithm, SumOrder order, const PlanGroup& group, const Pieces& pieces,
                           Plan& plan) {
  ensure(has_scatter_plan(algorithm), "plan_reduce_scatter: this algorithm has none");
  if (order == SumOrder::Ranks) {
    ordered_reduce_scatter(whole_circle(group, pieces), plan);
  } else if (algorithm == Algorithm::Ring) {
    ring_reduce_scatter(whole_circle(group, pieces), plan);
  } else if (algorithm == Algorithm::HalvingDoubling) {
    halving_reduce_scatter(whole_circle(group, pieces), plan);
  } else {
    Hierarchy(group).reduce_scatter(pieces, plan);
  }
}

void append_all_gather(Algorithm algorithm, const PlanGroup& group, const Pieces& pieces, Plan& plan) {
  ensure(has_scatter_plan(algorithm), "plan_all_gather: this algorithm has none");
  if (algorithm == Algorithm::Ring) {
    ring_all_gather(whole_circle(group, pieces), plan);
  } else if (algorithm == Algorithm::HalvingDoubling) {
    doubling_all_gather(whole_circle(group, pieces), plan);
  } else {
    Hierarchy(group).all_gather(pieces, plan);
  }
}

}  // namespace

bool has_scatter_plan(Algorithm algorithm) {
  return algorithm == Algorithm::Ring || algorithm == Algorithm::HalvingDoubling ||
         algorithm == Algorithm::Hierarchical;
}

bool has_plans(Algorithm algorithm) {
  return has_scatter_plan(algorithm) || algorithm == Algorithm::Tree || algorithm == Algorithm::DoubleTree;
}

Plan plan_all_reduce(Algorithm algorithm, SumOrder order, const PlanGroup& group, int64_t count, int64_t tree_chunk) {
  if (algorithm == Algorithm::Tree) return tree_all_reduce(order, group, count, tree_chunk);
  if (algorithm == Algorithm::DoubleTree) return double_tree_all_reduce(order, group, count, tree_chunk);
  const std::vector<int64_t> counts =
      algorithm == Algorithm::Hierarchical ? Hierarchy(group).all_reduce_counts(count) : even_counts(count, group.size);
  const Pieces pieces = Pieces::of(counts);
  Plan plan;
  append_reduce_scatter(algorithm, order, group, pieces, plan);
  append_all_gather(algorithm, group, pieces, plan);
  return plan;
}

Plan plan_reduce_scatter(Algorithm algorithm, SumOrder order, const PlanGroup& group, const Pieces& pieces) {
  Plan plan;
  append_reduce_scatter(algorithm, order, group, pieces, plan);
  return plan;
}

Plan plan_all_gather(Algorithm algorithm, const PlanGroup& group, const Pieces& pieces) {
  Plan plan;
  append_all_gather(algorithm, group, pieces, plan);
  return plan;
}

PlannedSends planned_sends(const Plan& plan, const PlanGroup& group) {
  PlannedSends sends;
  for (const Transfer& t : plan) {
    if (t.kind != TransferKind::Send) continue;
    (group.node(t.peer) == group.node(group.rank) ? sends.inside : sends.across) += t.size();
  }
  return sends;
}

}  // namespace triax::comm

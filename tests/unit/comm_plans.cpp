// Plans of collectives as data: played for all ranks at once by a small interpreter, and their bytes against formulas.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <tuple>

#include "base/error.h"
#include "comm/algorithms/plan.h"
#include "comm/algorithms/tree.h"
#include "comm/process_grid.h"

namespace triax::comm {
namespace {

using Values = std::vector<double>;

/// Own value of element i: sums of them depend on the order.
double value(int rank, int64_t i) { return 1.0 / static_cast<double>(3 + 7 * rank + i) + (rank % 2 == 0 ? 1e9 : 0); }

/// Messages of (sender, receiver, tag), first in first out.
class Network {
 public:
  explicit Network(std::vector<Plan> plans, std::vector<Values> buffers)
      : plans_(std::move(plans)), buffers_(std::move(buffers)), next_(plans_.size(), 0), inputs_(plans_.size()) {}

  /// Runs ranks in turn, always as far as they get; false when all are stuck, or messages are left over.
  bool run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t r = 0; r < plans_.size(); ++r) {
        while (next_[r] < plans_[r].size() && step(static_cast<int>(r))) moved = true;
      }
    }
    for (size_t r = 0; r < plans_.size(); ++r) {
      if (next_[r] < plans_[r].size()) return false;
    }
    for (const auto& [key, queue] : queues_) {
      if (!queue.empty()) return false;
    }
    return true;
  }
  const Values& buffer(int rank) const { return buffers_[static_cast<size_t>(rank)]; }

 private:
  bool step(int rank) {
    const Transfer& t = plans_[static_cast<size_t>(rank)][next_[static_cast<size_t>(rank)]];
    Values& mine = buffers_[static_cast<size_t>(rank)];
    auto& inputs = inputs_[static_cast<size_t>(rank)];
    if (t.kind == TransferKind::Send) {
      queues_[{rank, t.peer, t.tag}].emplace_back(mine.begin() + t.begin, mine.begin() + t.end);
    } else if (t.kind == TransferKind::SumInputs) {
      inputs[rank] = Values(mine.begin() + t.begin, mine.begin() + t.end);
      EXPECT_EQ(inputs.size(), plans_.size());
      for (int64_t i = 0; i < t.size(); ++i) {
        double sum = inputs[0][static_cast<size_t>(i)];
        for (int r = 1; r < static_cast<int>(plans_.size()); ++r) sum += inputs[r][static_cast<size_t>(i)];
        mine[static_cast<size_t>(t.begin + i)] = sum;
      }
      inputs.clear();
    } else {
      auto& queue = queues_[{t.peer, rank, t.tag}];
      if (queue.empty()) return false;
      const Values data = queue.front();
      queue.pop_front();
      EXPECT_EQ(static_cast<int64_t>(data.size()), t.size()) << "rank " << rank << " from " << t.peer;
      if (t.kind == TransferKind::RecvInput) inputs[t.peer] = data;
      for (size_t i = 0; i < data.size() && t.kind != TransferKind::RecvInput; ++i) {
        double& to = mine[static_cast<size_t>(t.begin) + i];
        to = t.kind == TransferKind::RecvSum ? to + data[i] : data[i];
      }
    }
    ++next_[static_cast<size_t>(rank)];
    return true;
  }

  std::vector<Plan> plans_;
  std::vector<Values> buffers_;
  std::vector<size_t> next_;
  std::vector<std::map<int, Values>> inputs_;
  std::map<std::tuple<int, int, int>, std::deque<Values>> queues_;
};

struct Case {
  Algorithm algorithm;
  SumOrder order;
  int size;
  std::vector<int> nodes;
  PlanGroup group(int rank) const { return {rank, size, nodes}; }
};

std::vector<int> fake_nodes(int size, int nodes) {
  std::vector<int> of;
  for (int r = 0; r < size; ++r) of.push_back(r * nodes / size);
  return of;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Algorithm algorithm : all_algorithms()) {
    if (!has_plans(algorithm)) continue;
    for (const SumOrder order : {SumOrder::Algorithm, SumOrder::Ranks}) {
      for (int n = 2; n <= 9; ++n) {
        if (algorithm != Algorithm::Hierarchical) {
          cases.push_back({algorithm, order, n, {}});
          continue;
        }
        for (int nodes = 1; nodes <= n; ++nodes) cases.push_back({algorithm, order, n, fake_nodes(n, nodes)});
        std::vector<int> mixed;  // nodes in turn
        for (int r = 0; r < n; ++r) mixed.push_back(r % 2);
        cases.push_back({algorithm, order, n, mixed});
      }
    }
  }
  return cases;
}

std::string name_of_case(const Case& c) {
  return fmt::format("{}{}, n {}, nodes {}", name_of(c.algorithm), c.order == SumOrder::Ranks ? " in rank order" : "",
                     c.size, fmt::join(c.nodes, " "));
}

std::vector<Values> own_values(int ranks, int64_t count) {
  std::vector<Values> buffers(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    for (int64_t i = 0; i < count; ++i) buffers[static_cast<size_t>(r)].push_back(value(r, i));
  }
  return buffers;
}

double serial_sum(int ranks, int64_t i) {
  double sum = value(0, i);
  for (int r = 1; r < ranks; ++r) sum += value(r, i);
  return sum;
}

void expect_sum(const Case& c, double actual, int64_t i) {
  if (c.order == SumOrder::Ranks) {
    EXPECT_EQ(actual, serial_sum(c.size, i)) << i;
  } else {
    EXPECT_NEAR(actual, serial_sum(c.size, i), 1e-15 * 1e10) << i;
  }
}

TEST(Plans, all_reduce_gives_every_rank_the_same_sum) {
  for (const Case& c : all_cases()) {
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{16}, int64_t{41}}) {
      SCOPED_TRACE(fmt::format("{} count {}", name_of_case(c), count));
      std::vector<Plan> plans;
      for (int r = 0; r < c.size; ++r) plans.push_back(plan_all_reduce(c.algorithm, c.order, c.group(r), count, 3));
      Network network(plans, own_values(c.size, count));
      ASSERT_TRUE(network.run());
      for (int64_t i = 0; i < count; ++i) expect_sum(c, network.buffer(0)[static_cast<size_t>(i)], i);
      for (int r = 1; r < c.size; ++r) EXPECT_EQ(network.buffer(r), network.buffer(0)) << r;
    }
  }
}

TEST(Plans, reduce_scatter_and_all_gather_of_unequal_pieces) {
  for (const Case& c : all_cases()) {
    if (!has_scatter_plan(c.algorithm)) continue;
    SCOPED_TRACE(name_of_case(c));
    std::vector<int64_t> counts;
    for (int r = 0; r < c.size; ++r) counts.push_back(r == 1 ? 0 : r * 2 + 3);
    const Pieces pieces = Pieces::of(counts);
    std::vector<Plan> scatter, gather;
    for (int r = 0; r < c.size; ++r) {
      scatter.push_back(plan_reduce_scatter(c.algorithm, c.order, c.group(r), pieces));
      gather.push_back(plan_all_gather(c.algorithm, c.group(r), pieces));
    }
    Network sums(scatter, own_values(c.size, pieces.total()));
    ASSERT_TRUE(sums.run());
    std::vector<Values> placed;
    for (int r = 0; r < c.size; ++r) {
      placed.emplace_back(static_cast<size_t>(pieces.total()), -1.0);
      for (int64_t i = pieces.begin(r); i < pieces.begin(r) + pieces.count(r); ++i) {
        expect_sum(c, sums.buffer(r)[static_cast<size_t>(i)], i);
        placed.back()[static_cast<size_t>(i)] = static_cast<double>(i);
      }
    }
    Network gathered(gather, placed);
    ASSERT_TRUE(gathered.run());
    for (int r = 0; r < c.size; ++r) {
      for (int64_t i = 0; i < pieces.total(); ++i) EXPECT_EQ(gathered.buffer(r)[static_cast<size_t>(i)], i) << r;
    }
  }
}

/// The formulas in plan.h, exactly, for every rank.
TEST(Plans, bytes_are_those_of_the_formulas) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(name_of_case(c));
    const int64_t n = c.size;
    const int64_t count = 840 * n * 2;  // divides by all pieces
    int64_t total = 0;
    for (int r = 0; r < c.size; ++r) {
      const PlannedSends sent =
          planned_sends(plan_all_reduce(c.algorithm, c.order, c.group(r), count, 100), c.group(r));
      total += sent.inside + sent.across;
      if (c.algorithm == Algorithm::Ring || c.algorithm == Algorithm::HalvingDoubling) {
        EXPECT_EQ(sent.inside, 2 * count / n * (n - 1));
        const Pieces pieces = Pieces::even(count / n, c.size);
        const Plan scatter = plan_reduce_scatter(c.algorithm, c.order, c.group(r), pieces);
        const Plan gather = plan_all_gather(c.algorithm, c.group(r), pieces);
        EXPECT_EQ(planned_sends(scatter, c.group(r)).inside, count / n * (n - 1));
        EXPECT_EQ(planned_sends(gather, c.group(r)).inside, count / n * (n - 1));
      } else if (c.algorithm == Algorithm::Tree) {
        const TreeNode node = tree_node(r, c.size);
        const auto children = static_cast<int64_t>(node.children.size());
        EXPECT_EQ(sent.inside, count * ((node.parent >= 0 ? 1 : 0) + children));
      } else if (c.algorithm == Algorithm::DoubleTree) {
        EXPECT_LE(sent.inside, 2 * count);
      }
    }
    if (c.algorithm != Algorithm::Hierarchical) {
      EXPECT_EQ(total, 2 * (n - 1) * count);
    }
  }
}

TEST(Plans, hierarchical_bytes_inside_and_across) {
  for (const int nodes : {1, 2, 3, 4}) {
    for (const int64_t per_node : {1, 2, 3, 4}) {
      const int n = nodes * static_cast<int>(per_node);
      if (n == 1) continue;
      const int64_t count = 5040 * n;
      for (int r = 0; r < n; ++r) {
        const PlanGroup group{r, n, fake_nodes(n, nodes)};
        const Pieces pieces = Pieces::even(count / n, n);
        const int64_t inside = count / per_node * (per_node - 1);
        const int64_t across = count / per_node / nodes * (nodes - 1);
        const auto sends = [&](const Plan& plan) { return planned_sends(plan, group); };
        const PlannedSends whole =
            sends(plan_all_reduce(Algorithm::Hierarchical, SumOrder::Algorithm, group, count, 1));
        const PlannedSends scatter =
            sends(plan_reduce_scatter(Algorithm::Hierarchical, SumOrder::Algorithm, group, pieces));
        const PlannedSends gather = sends(plan_all_gather(Algorithm::Hierarchical, group, pieces));
        EXPECT_EQ(whole.inside, 2 * inside);
        EXPECT_EQ(whole.across, 2 * across);
        EXPECT_EQ(scatter.inside, inside);
        EXPECT_EQ(scatter.across, across);
        EXPECT_EQ(gather.inside, inside);
        EXPECT_EQ(gather.across, across);
        const PlannedSends ordered =
            sends(plan_reduce_scatter(Algorithm::Hierarchical, SumOrder::Ranks, group, pieces));
        EXPECT_EQ(ordered.inside, count / n * (per_node - 1));
        EXPECT_EQ(ordered.across, count / n * (n - per_node));
      }
    }
  }
}

TEST(Plans, halving_takes_the_logarithm_of_steps) {
  for (int n = 2; n <= 33; ++n) {
    int steps = 0;
    while ((1 << steps) < n) ++steps;
    for (int r = 0; r < n; ++r) {
      int peers = 0, last = -1;
      const Plan plan =
          plan_reduce_scatter(Algorithm::HalvingDoubling, SumOrder::Algorithm, {r, n, {}}, Pieces::even(4, n));
      for (const Transfer& t : plan) {
        if (t.kind == TransferKind::Send && t.peer != last) last = t.peer, ++peers;
      }
      EXPECT_EQ(peers, steps) << n << " " << r;
    }
  }
}

TEST(Trees, have_one_root_and_agree_about_parents) {
  for (int n = 1; n <= 40; ++n) {
    for (const bool second : {false, true}) {
      const auto node = [&](int r) { return second ? second_tree_node(r, n) : tree_node(r, n); };
      const int root = second ? second_tree_root(n) : tree_root(n);
      int height = 0;
      while ((2 << height) <= n) ++height;
      for (int r = 0; r < n; ++r) {
        EXPECT_EQ(node(r).parent < 0, r == root) << n;
        EXPECT_LE(node(r).children.size(), 2u);
        for (const int child : node(r).children) EXPECT_EQ(node(child).parent, r) << n;
        int depth = 0;
        for (int at = r; at != root; at = node(at).parent) ASSERT_LE(++depth, height) << n;
        // Nobody is an inner rank of both.
        EXPECT_TRUE(tree_node(r, n).children.empty() || second_tree_node(r, n).children.empty()) << n << " " << r;
      }
    }
  }
}

TEST(CollectiveOptions, rules_name_groups_and_the_last_wins) {
  const CollectiveOptions options = parse_collective_algorithms("ring,tp=library,dp=hierarchical", SumOrder::Algorithm);
  EXPECT_EQ(options.of("pp"), Algorithm::Ring);
  EXPECT_EQ(options.of("tp"), Algorithm::Library);
  EXPECT_EQ(options.of("dp"), Algorithm::Hierarchical);
  EXPECT_EQ(parse_collective_algorithms("", SumOrder::Ranks).of("dp"), Algorithm::Default);
  for (const Algorithm algorithm : all_algorithms()) {
    const std::string spec = fmt::format("dp={}", name_of(algorithm));
    EXPECT_EQ(parse_collective_algorithms(spec, SumOrder::Algorithm).of("dp"), algorithm);
  }
  for (const char* wrong : {"rings", "dp=", "dp=ring,", "xy=ring", "=ring", "dp=ring=ring", ",dp=ring"}) {
    EXPECT_THROW(parse_collective_algorithms(wrong, SumOrder::Algorithm), ConfigError) << wrong;
  }
  EXPECT_THROW(parse_collective_algorithms("dp=library", SumOrder::Ranks), ConfigError);
}

/// A rank of a job that does not run counts the same bytes.
TEST(PhantomGrid, counts_what_the_algorithm_would_send) {
  GridOptions options;
  options.shape.data = 32;
  options.shape.tensor = 2;
  options.collectives = parse_collective_algorithms("dp=hierarchical,tp=ring", SumOrder::Algorithm);
  ProcessGrid grid(PhantomRank{9, 8}, options);  // a node holds tp 2 x dp 4
  Arena arena(grid.memory());
  const Buffer buffer = arena.allocate(DType::BFloat16, 32000, MemoryCategory::Workspace);
  const Tensor t = buffer.view(DType::BFloat16, {32000});
  std::fill_n(t.as<bf16>(), 32000, bf16(3.0f));
  grid.data().all_reduce(t, ReduceOp::Sum).wait();
  grid.data().all_gather(t.range(0, 1000), t).wait();
  grid.tensor().all_reduce(t, ReduceOp::Sum).wait();
  EXPECT_EQ(static_cast<float>(t.as<bf16>()[31999]), 3.0f);  // nothing moves
  const auto entries = grid.ledger().snapshot();
  const LedgerEntry& sum = entries.at({"dp", Operation::AllReduce});
  EXPECT_EQ(sum.counted, (SentBytes{2 * 64000 / 4 * 3, 2 * 64000 / 4 / 8 * 7}));
  EXPECT_EQ(sum.sent_bytes, static_cast<double>(sum.counted.total()));
  EXPECT_EQ(sum.converted_calls, 0);
  EXPECT_EQ(entries.at({"dp", Operation::AllGather}).counted, (SentBytes{64000 / 4 * 3, 64000 / 4 / 8 * 7}));
  EXPECT_EQ(entries.at({"tp", Operation::AllReduce}).counted, (SentBytes{64000, 0}));
  options.collectives = parse_collective_algorithms("dp=shared-memory", SumOrder::Algorithm);
  EXPECT_THROW(ProcessGrid(PhantomRank{9, 8}, options), ConfigError);
}

}  // namespace
}  // namespace triax::comm

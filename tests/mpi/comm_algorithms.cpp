// Every algorithm over real messages: sums against values computed here, bytes against formulas, injected delays.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "comm/process_grid.h"
#include "tests/mpi/collective_values.h"
#include "tests/mpi/mpi_world.h"

namespace triax::comm {
namespace {

using test::fill;
using test::first_wrong;
using test::reduced;
using test::value;

constexpr DType kDTypes[] = {DType::Float64, DType::Float32, DType::BFloat16,
                             DType::Float16, DType::Int32,   DType::Int64};
constexpr int64_t kSizes[] = {0, 1, 7, 1001, 100003};

/// How the group of all ranks is made.
struct Way {
  std::string algorithm;
  SumOrder order = SumOrder::Algorithm;
  int nodes = 0;            ///< faked
  std::string delays = "";  ///< injected
  bool shared = true;
};

GridOptions options_of(const Way& way) {
  GridOptions options;
  options.shape.tensor = test::session().size();
  options.timeout_s = 60;
  options.shared_memory = way.shared;
  options.fake_nodes = way.nodes;
  options.delay_spec = way.delays;
  options.collectives = parse_collective_algorithms(way.algorithm, way.order);
  return options;
}

std::string text_of(const Way& way) {
  return fmt::format("{}{} on {} nodes{}", way.algorithm, way.order == SumOrder::Ranks ? " in rank order" : "",
                     std::max(way.nodes, 1), way.shared ? "" : " over messages");
}

const std::vector<std::string> kPlanned{"ring", "halving-doubling", "tree", "double-tree", "hierarchical"};

std::vector<Way> all_ways() {
  std::vector<Way> ways{{"library"}, {"direct"}};
  for (const std::string& algorithm : kPlanned) {
    for (const SumOrder order : {SumOrder::Algorithm, SumOrder::Ranks}) {
      ways.push_back({algorithm, order});
      ways.push_back({algorithm, order, 2});
    }
  }
  ways.push_back({"hierarchical", SumOrder::Algorithm, 3});
  return ways;
}

/// One group at a time over all ranks, and tensors for it.
class World {
 public:
  explicit World(const Way& way)
      : grid_(std::make_unique<ProcessGrid>(test::session(), options_of(way))), arena_(grid_->memory()) {}
  ~World() { comm().barrier(); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  Communicator& comm() { return grid_->tensor(); }
  ProcessGrid& grid() { return *grid_; }
  int rank() { return comm().rank(); }
  int size() { return comm().size(); }
  Tensor tensor(DType dtype, int64_t elements) {
    buffers_.push_back(arena_.allocate(dtype, elements, MemoryCategory::Workspace));
    return buffers_.back().view(dtype, {elements});
  }
  Tensor mine(DType dtype, int64_t elements) {
    const Tensor t = tensor(dtype, elements);
    fill(t, [&](int64_t i) { return value(rank(), i); });
    return t;
  }
  void clear() { buffers_.clear(); }

 private:
  std::unique_ptr<ProcessGrid> grid_;
  Arena arena_;
  std::vector<Buffer> buffers_;
};

void check_all_reduce(World& world, DType dtype, ReduceOp op, int64_t size) {
  const Tensor t = world.mine(dtype, size);
  world.comm().all_reduce(t, op).wait();
  EXPECT_EQ(first_wrong(t, [&](int64_t i) { return reduced(op, world.size(), i); }), -1);
}

void check_reduce_scatter(World& world, DType dtype, ReduceOp op, int64_t size) {
  const int64_t begin = world.rank() * size;
  const auto expected = [&](int64_t i) { return reduced(op, world.size(), begin + i); };
  const Tensor in = world.mine(dtype, size * world.size());
  const Tensor out = world.tensor(dtype, size);
  world.comm().reduce_scatter(in, out, op).wait();
  EXPECT_EQ(first_wrong(out, expected), -1);
  EXPECT_EQ(first_wrong(in, [&](int64_t i) { return value(world.rank(), i); }), -1) << "the input was changed";
  const Tensor own = in.range(begin, begin + size);
  world.comm().reduce_scatter(in, own, op).wait();
  EXPECT_EQ(first_wrong(own, expected), -1);
}

void check_all_gather(World& world, DType dtype, int64_t size) {
  const auto expected = [&](int64_t i) { return value(static_cast<int>(i / size), i % size); };
  const Tensor out = world.tensor(dtype, size * world.size());
  world.comm().all_gather(world.mine(dtype, size), out).wait();
  EXPECT_EQ(first_wrong(out, expected), -1);
  fill(out, [](int64_t) { return -1; });
  const Tensor own = out.range(world.rank() * size, (world.rank() + 1) * size);
  fill(own, [&](int64_t i) { return value(world.rank(), i); });
  world.comm().all_gather(own, out).wait();
  EXPECT_EQ(first_wrong(out, expected), -1);
}

void check_unequal_pieces(World& world, int64_t base) {
  std::vector<int64_t> counts;
  int64_t begin = 0, total = 0;
  for (int r = 0; r < world.size(); ++r) {
    counts.push_back(r == 1 ? 0 : base * (r + 1) + r);
    if (r < world.rank()) begin += counts.back();
    total += counts.back();
  }
  const Tensor in = world.mine(DType::Float32, total);
  const Tensor piece = world.tensor(DType::Float32, counts[static_cast<size_t>(world.rank())]);
  world.comm().reduce_scatter_v(in, piece, counts, ReduceOp::Sum).wait();
  EXPECT_EQ(first_wrong(piece, [&](int64_t i) { return reduced(ReduceOp::Sum, world.size(), begin + i); }), -1);
  const Tensor out = world.tensor(DType::Float32, total);
  world.comm().all_gather_v(piece, out, counts).wait();
  EXPECT_EQ(first_wrong(out, [&](int64_t i) { return reduced(ReduceOp::Sum, world.size(), i); }), -1);
}

TEST(Algorithms, agree_with_a_serial_sum) {
  for (const Way& way : all_ways()) {
    World world(way);
    for (const DType dtype : kDTypes) {
      for (const int64_t size : kSizes) {
        SCOPED_TRACE(fmt::format("{}, {} {}", text_of(way), size, name_of(dtype)));
        check_all_reduce(world, dtype, ReduceOp::Sum, size);
        check_reduce_scatter(world, dtype, ReduceOp::Sum, size / 8);
        check_all_gather(world, dtype, size / 8);
        world.clear();
      }
      for (const ReduceOp op : {ReduceOp::Max, ReduceOp::Min}) check_all_reduce(world, dtype, op, 37);
    }
    for (const int64_t base : {1, 300, 7001}) check_unequal_pieces(world, base);
    // What has no plan goes the default way.
    const Tensor t = world.mine(DType::BFloat16, 1001);
    world.comm().broadcast(t, world.size() - 1).wait();
    EXPECT_EQ(first_wrong(t, [&](int64_t i) { return value(world.size() - 1, i); }), -1) << text_of(way);
    const Tensor in = world.mine(DType::Float16, 5 * world.size());
    const Tensor out = world.tensor(DType::Float16, 5 * world.size());
    world.comm().all_to_all(in, out).wait();
    const auto exchanged = [&](int64_t i) { return value(static_cast<int>(i / 5), world.rank() * 5 + i % 5); };
    EXPECT_EQ(first_wrong(out, exchanged), -1) << text_of(way);
    world.comm().reduce(in, ReduceOp::Sum, 0).wait();
    const auto summed = [&](int64_t i) {
      return world.rank() == 0 ? reduced(ReduceOp::Sum, world.size(), i) : value(world.rank(), i);
    };
    EXPECT_EQ(first_wrong(in, summed), -1) << text_of(way);
  }
}

/// More than one block of the runner, and more than one chunk of each transfer.
TEST(Algorithms, long_buffers_go_through_in_blocks) {
  const int64_t size = (int64_t{16} << 20) / 4 * 2 + 12345;
  for (const std::string& algorithm : kPlanned) {
    SCOPED_TRACE(algorithm);
    World world({algorithm, SumOrder::Algorithm, algorithm == "hierarchical" ? 2 : 0});
    const Tensor t = world.tensor(DType::Float32, size);
    const auto own = [](int rank, int64_t i) { return static_cast<float>((i & 1023) + rank); };
    for (int64_t i = 0; i < size; ++i) t.as<float>()[i] = own(world.rank(), i);
    world.comm().all_reduce(t, ReduceOp::Sum).wait();
    int64_t wrong = 0;
    const int n = world.size();
    for (int64_t i = 0; i < size; ++i) {
      wrong += t.as<float>()[i] != static_cast<float>(n) * own(0, i) + static_cast<float>(n * (n - 1) / 2) ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0);
  }
}

float rough(int rank, int64_t i) {
  return std::ldexp(1.0f + 0.37f * static_cast<float>(rank), static_cast<int>((i * 5 + rank * 11) % 40) - 20);
}

/// The very bits of ((r0 + r1) + r2) + ... in fp32, rounded once, whatever the algorithm, and with delayed messages.
TEST(FixedOrder, the_bits_do_not_depend_on_the_algorithm) {
  std::vector<Way> ways{{"default", SumOrder::Ranks}, {"direct", SumOrder::Ranks}};
  for (const std::string& algorithm : kPlanned) {
    ways.push_back({algorithm, SumOrder::Ranks, 2});
    ways.push_back({algorithm, SumOrder::Ranks, 2, "tp.links:uniform:0:300us:seed=5"});
  }
  for (const Way& way : ways) {
    SCOPED_TRACE(text_of(way));
    World world(way);
    for (const DType dtype : {DType::Float32, DType::BFloat16}) {
      const auto own = [&](int rank, int64_t i) {
        return dtype == DType::Float32 ? rough(rank, i) : static_cast<float>(bf16(rough(rank, i)));
      };
      const auto expected = [&](int64_t i) {
        float sum = own(0, i);
        for (int r = 1; r < world.size(); ++r) sum += own(r, i);
        return dtype == DType::Float32 ? sum : static_cast<float>(bf16(sum));
      };
      const Tensor t = world.tensor(dtype, 3001);
      fill(t, [&](int64_t i) { return rough(world.rank(), i); });
      world.comm().all_reduce(t, ReduceOp::Sum).wait();
      EXPECT_EQ(first_wrong(t, expected), -1);
      const Tensor in = world.tensor(dtype, 101 * world.size());
      fill(in, [&](int64_t i) { return rough(world.rank(), i); });
      const Tensor out = world.tensor(dtype, 101);
      world.comm().reduce_scatter(in, out, ReduceOp::Sum).wait();
      EXPECT_EQ(first_wrong(out, [&](int64_t i) { return expected(world.rank() * 101 + i); }), -1);
    }
  }
}

TEST(Delays, in_random_messages_change_no_sum) {
  for (const std::string& algorithm : kPlanned) {
    for (const bool shared : {true, false}) {
      const Way way{algorithm, SumOrder::Algorithm, shared ? 0 : 2, "tp.links:uniform:0:500us:seed=9", shared};
      SCOPED_TRACE(text_of(way));
      World world(way);
      for (int round = 0; round < 5; ++round) {
        check_all_reduce(world, DType::Float32, ReduceOp::Sum, 999 + round);
        check_reduce_scatter(world, DType::BFloat16, ReduceOp::Sum, 101);
        check_all_gather(world, DType::Float64, 55);
      }
    }
  }
}

/// S in bytes, n ranks, dividing evenly: the formulas of comm/algorithms/plan.h, exactly, on every rank.
TEST(Bytes, equal_the_formulas) {
  const int n = test::session().size();
  const int64_t elements = int64_t{5040} * n;
  const int64_t s = elements * 2;
  for (const std::string algorithm : {"ring", "halving-doubling", "hierarchical", "tree", "direct", "library"}) {
    for (const int nodes : {1, 2, 4}) {
      if (n % nodes != 0 || n == nodes) continue;
      SCOPED_TRACE(fmt::format("{} on {} nodes", algorithm, nodes));
      World world({algorithm, SumOrder::Algorithm, nodes});
      const Tensor whole = world.tensor(DType::BFloat16, elements);
      const Tensor piece = world.tensor(DType::BFloat16, elements / n);
      world.grid().ledger().reset();
      world.comm().all_reduce(whole, ReduceOp::Sum).wait();
      world.comm().reduce_scatter(whole, piece, ReduceOp::Sum).wait();
      world.comm().all_gather(piece, whole).wait();
      const auto entries = world.grid().ledger().snapshot();
      const LedgerEntry sum = entries.at({"tp", Operation::AllReduce});
      const LedgerEntry scatter = entries.at({"tp", Operation::ReduceScatter});
      const LedgerEntry gather = entries.at({"tp", Operation::AllGather});
      EXPECT_EQ(sum.payload_bytes, s);
      EXPECT_EQ(sum.converted_calls, algorithm == "library" ? 1 : 0);
      if (algorithm != "tree") {
        EXPECT_EQ(sum.sent_bytes, static_cast<double>(2 * (s / n) * (n - 1)));
        EXPECT_EQ(scatter.sent_bytes, static_cast<double>(s / n * (n - 1)));
        EXPECT_EQ(gather.sent_bytes, static_cast<double>(s / n * (n - 1)));
      }
      const int64_t per_node = n / nodes;
      const SentBytes half = algorithm == "hierarchical"
                                 ? SentBytes{s / per_node * (per_node - 1), s / per_node / nodes * (nodes - 1)}
                                 : SentBytes{s / n * (per_node - 1), s / n * (n - per_node)};
      if (algorithm == "hierarchical" || algorithm == "direct") {
        EXPECT_EQ(sum.counted, (SentBytes{2 * half.inside, 2 * half.across}));
        EXPECT_EQ(scatter.counted, half);
        EXPECT_EQ(gather.counted, half);
      }
      // What all ranks send together.
      std::vector<int64_t> across(static_cast<size_t>(n));
      int64_t mine = sum.counted.total();
      world.comm().all_gather(Tensor(&mine, DType::Int64, {1}), Tensor(across.data(), DType::Int64, {n})).wait();
      int64_t total = 0;
      for (const int64_t one : across) total += one;
      EXPECT_EQ(total, algorithm == "library" ? 0 : 2 * (n - 1) * s);
    }
  }
}

/// Messages count by the nodes of sender and receiver, whatever carries them.
TEST(Bytes, of_messages) {
  for (const char* algorithm : {"default", "direct", "ring", "library"}) {
    SCOPED_TRACE(algorithm);
    World world({algorithm, SumOrder::Algorithm, 2});
    const int last = world.size() - 1;
    const Tensor t = world.mine(DType::Float32, 1000);
    world.grid().ledger().reset();
    if (world.rank() == 0) world.comm().send(t, last, 3).wait();
    if (world.rank() == last) world.comm().recv(t, 0, 3).wait();
    const auto entries = world.grid().ledger().snapshot();
    const Operation op = world.rank() == 0 ? Operation::Send : Operation::Recv;
    if (world.rank() != 0 && world.rank() != last) continue;
    EXPECT_EQ(entries.at({"tp", op}).counted, (SentBytes{0, world.rank() == 0 ? 4000 : 0}));
    EXPECT_EQ(entries.at({"tp", op}).converted_calls, 0);
  }
}

TEST(Refused, shared_memory_across_nodes_and_without_it) {
  EXPECT_THROW(World({"shared-memory", SumOrder::Algorithm, 2}), ConfigError);
  EXPECT_THROW(World({"shared-memory", SumOrder::Algorithm, 0, "", false}), ConfigError);
  World world({"shared-memory"});
  check_all_reduce(world, DType::Float32, ReduceOp::Sum, 5000);
}

}  // namespace
}  // namespace triax::comm

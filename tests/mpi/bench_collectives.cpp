// The collectives of `triax bench coll`: right in every place, by every algorithm, over every split; and a wrong
// element is seen.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bench/collectives.h"
#include "bench/link_tables.h"
#include "mpi_world.h"

namespace triax::bench {
namespace {

using comm::Operation;
using comm::ReduceOp;
using comm::Work;

const std::vector<Operation> kAll{Operation::AllReduce, Operation::AllGather, Operation::ReduceScatter,
                                  Operation::Broadcast, Operation::Reduce,    Operation::AllToAll,
                                  Operation::Send};

CollectiveBench small_bench() {
  CollectiveBench bench;
  bench.ops = kAll;
  bench.sizes = {4096, 65536, 16, 0};
  bench.calls = 2;
  bench.turns = 2;
  return bench;
}

void expect_right(const std::vector<CollectiveRow>& rows, const CollectiveBench& bench) {
  ASSERT_EQ(rows.size(), kAll.size() * 2 * bench.algorithms.size());
  for (const CollectiveRow& row : rows) {
    SCOPED_TRACE(fmt::format("{} {} {}", bench_name(row.op), row.algorithm, row.size_bytes));
    EXPECT_EQ(row.out_of_place.wrong, 0);
    EXPECT_EQ(row.out_of_place.time.samples, 4);
    EXPECT_EQ(row.in_place.wrong, has_in_place(row.op) ? 0 : -1);
    EXPECT_EQ(row.in_place.measured(), has_in_place(row.op));
    EXPECT_GT(row.busbw_gbps(row.training()), 0);
  }
}

TEST(Collectives, are_right_by_every_algorithm_in_and_out_of_place) {
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    CollectiveBench bench = small_bench();
    bench.dtype = dtype;
    bench.algorithms = comm::all_algorithms();
    expect_right(measure_collectives(test::session(), bench), bench);
  }
}

TEST(Collectives, are_right_for_max_and_min_and_in_ordinary_memory) {
  for (const ReduceOp op : {ReduceOp::Max, ReduceOp::Min}) {
    CollectiveBench bench = small_bench();
    bench.reduce = op;
    bench.place = BufferPlace::Heap;
    expect_right(measure_collectives(test::session(), bench), bench);
  }
}

TEST(Collectives, groups_of_a_split_have_their_size) {
  const int world = test::session().size();
  const std::vector<std::string> splits =
      world < 4 ? std::vector<std::string>{"div:2"} : std::vector<std::string>{"mod:2", "div:2", "and:1"};
  for (const std::string& text : splits) {
    CollectiveBench bench = small_bench();
    bench.split = Split::parse(text);
    const std::vector<CollectiveRow> rows = measure_collectives(test::session(), bench);
    expect_right(rows, bench);
    EXPECT_EQ(rows[0].ranks, text == "div:2" ? 2 : world / 2) << text;
  }
}

TEST(Collectives, all_groups_of_a_layout_talk_at_once) {
  const int world = test::session().size();
  comm::GridOptions options;
  options.shape.tensor = 2;
  options.shape.data = world / 2;
  comm::ProcessGrid grid(test::session(), options);
  CollectiveBench bench = small_bench();
  bench.ops = {Operation::AllReduce};
  const std::vector<std::string> groups =
      world > 2 ? std::vector<std::string>{"tp", "dp"} : std::vector<std::string>{"tp"};
  const std::vector<GroupRow> rows = measure_groups(grid, groups, bench);
  ASSERT_EQ(rows.size(), 2 * groups.size());
  for (const GroupRow& row : rows) {
    EXPECT_EQ(row.ranks, row.group == "tp" ? 2 : world / 2);
    EXPECT_EQ(row.alone.samples, 4);
    EXPECT_EQ(row.together.samples, 4);
  }
}

// Two nodes: neighbours on one and on two, each a link of its own; one rank on each node: the network alone.
TEST(Links, inside_a_node_and_between_nodes_are_two) {
  const int world = test::session().size();
  LinkMeasure how;
  how.timing = {.rounds = 1, .sample_s = 0, .most_calls = 1};
  how.most_bytes = 1024;
  how.ranks_of_node = world / 2;
  how.fake_nodes = 2;
  const LinkTables tables = measure_links(test::session(), {DType::Float32}, how, Budget(60, nullptr));
  ASSERT_EQ(tables.links.size(), world > 2 ? 2u : 1u);
  EXPECT_EQ(tables.links.back().name, "network");
  EXPECT_EQ(tables.links.back().ranks, 0);
  if (world > 2) {
    EXPECT_EQ(tables.links.front().name, "shared-memory");
    EXPECT_EQ(tables.links.front().ranks, world / 2);
  }
  for (const Link& link : tables.links) {
    EXPECT_GT(link.latency_s.value, 0);
    EXPECT_GT(link.bytes_per_s.value, 0);
  }
  int messages[2] = {0, 0};
  for (const CollectivePoint& p : tables.collectives) {
    EXPECT_GT(p.time_s, 0);
    if (p.operation == Operation::Send) ++messages[p.nodes - 1];
    if (p.ranks == world && p.operation != Operation::Send) {
      EXPECT_EQ(p.nodes, 2);
    }
  }
  EXPECT_EQ(messages[0], world > 2 ? 2 : 0);  // of 256 and 1024 bytes
  EXPECT_EQ(messages[1], 2);
}

/// Passes all calls on, and spoils one element of every result.
class Spoiling final : public comm::Communicator {
 public:
  explicit Spoiling(comm::Communicator& inner) : inner_(&inner) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  Work all_reduce(Tensor t, ReduceOp op) override { return spoil(inner_->all_reduce(t, op), t); }
  Work reduce(Tensor t, ReduceOp op, int root) override { return spoil(inner_->reduce(t, op, root), t); }
  Work all_gather(Tensor in, Tensor out) override { return spoil(inner_->all_gather(in, out), out); }
  Work all_gather_v(Tensor in, Tensor out, std::span<const int64_t> counts) override {
    return inner_->all_gather_v(in, out, counts);
  }
  Work reduce_scatter(Tensor in, Tensor out, ReduceOp op) override {
    return spoil(inner_->reduce_scatter(in, out, op), out);
  }
  Work reduce_scatter_v(Tensor in, Tensor out, std::span<const int64_t> counts, ReduceOp op) override {
    return inner_->reduce_scatter_v(in, out, counts, op);
  }
  Work broadcast(Tensor t, int root) override { return spoil(inner_->broadcast(t, root), t); }
  Work all_to_all(Tensor in, Tensor out) override { return spoil(inner_->all_to_all(in, out), out); }
  Work send(Tensor t, int peer, int tag) override { return inner_->send(t, peer, tag); }
  Work recv(Tensor t, int peer, int tag) override { return spoil(inner_->recv(t, peer, tag), t, Late::Yes); }
  void barrier() override { inner_->barrier(); }
  Tensor allocate_symmetric(DType dtype, int64_t elements) override {
    return inner_->allocate_symmetric(dtype, elements);
  }

 private:
  enum class Late { No, Yes };
  /// Received data are spoiled by waiting for them late; others at once.
  static Work spoil(Work work, Tensor t, Late late = Late::No) {
    if (late == Late::Yes) {
      struct Spoil final : Work::State {
        Work inner;
        Tensor tensor;
        void wait() override {
          inner.wait();
          tensor.as<float>()[tensor.numel() - 1] += 1;
        }
        bool test() override { return false; }
      };
      auto state = std::make_unique<Spoil>();
      state->inner = std::move(work);
      state->tensor = t;
      return Work(std::move(state));
    }
    work.wait();
    t.as<float>()[t.numel() - 1] += 1;
    return {};
  }
  comm::Communicator* inner_;
};

TEST(Collectives, the_check_sees_one_wrong_element) {
  comm::GridOptions options;
  options.shape.tensor = test::session().size();
  comm::ProcessGrid grid(test::session(), options);
  Spoiling spoiling(grid.tensor());
  HeapProvider heap;  // what a rank spoils in shared memory, another could still be reading
  Arena arena(heap);
  for (const Operation op : kAll) {
    Exchange exchange(spoiling, arena, op, ReduceOp::Sum, DType::Float32, 4096);
    const bool has_result = op != Operation::Reduce || grid.tensor().rank() == 0;
    EXPECT_EQ(exchange.check(Place::OutOf), has_result ? 1 : 0) << bench_name(op);
    grid.world().barrier();
  }
}

}  // namespace
}  // namespace triax::bench

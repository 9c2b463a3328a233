// The grid as a whole: its groups, what the ledger counts, overlap on the communication thread, over-subscription.
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <thread>

#include "comm/mpi_cures.h"
#include "comm/process_grid.h"
#include "tests/mpi/mpi_world.h"

namespace triax::comm {
namespace {

/// tp 2 and what is left on dp (2 ranks), dp x pp (4, 8).
GridShape shape_of(int world) {
  GridShape shape;
  shape.tensor = world >= 4 ? 2 : 1;
  shape.pipeline = world >= 8 ? 2 : 1;
  shape.data = world / shape.tensor / shape.pipeline;
  return shape;
}

GridOptions options_of() {
  GridOptions options;
  options.shape = shape_of(test::session().size());
  options.timeout_s = 60;
  return options;
}

class Grid : public testing::Test {
 protected:
  Tensor tensor(DType dtype, int64_t elements) {
    buffers_.push_back(arena_.allocate(dtype, elements, MemoryCategory::Workspace));
    return buffers_.back().view(dtype, {elements});
  }
  HeapProvider heap_;
  Arena arena_{heap_};
  std::vector<Buffer> buffers_;
};

/// Every rank contributes a bit: the sum names the members.
TEST_F(Grid, groups_hold_the_ranks_of_the_shape) {
  for (const RankOrder order : {RankOrder::TpCpDpPp, RankOrder::TpCpPpDp}) {
    GridOptions options = options_of();
    options.shape.order = order;
    options.kv_replication = options.shape.tensor;
    ProcessGrid grid(test::session(), options);
    const int rank = test::session().rank();
    EXPECT_EQ(grid.world_rank(), rank);
    EXPECT_EQ(rank_of(options.shape, grid.coord()), rank);
    const auto check = [&](Communicator& comm, const std::vector<int>& ranks) {
      ASSERT_EQ(comm.size(), static_cast<int>(ranks.size())) << comm.name();
      EXPECT_EQ(ranks[static_cast<size_t>(comm.rank())], rank) << comm.name();
      const Tensor bits = tensor(DType::Int64, 1);
      bits.as<int64_t>()[0] = int64_t{1} << rank;
      int64_t expected = 0;
      for (const int r : ranks) expected += int64_t{1} << r;
      comm.all_reduce(bits, ReduceOp::Sum).wait();
      EXPECT_EQ(bits.as<int64_t>()[0], expected) << comm.name();
    };
    for (const Axis axis : {Axis::Tensor, Axis::Context, Axis::Data, Axis::Pipeline}) {
      check(grid.axis(axis), group_of(options.shape, rank, axis));
    }
    check(grid.model_parallel(), model_parallel_group_of(options.shape, rank));
    check(grid.embedding(), embedding_group_of(options.shape, rank));
    check(grid.kv_replicas(), kv_replica_group_of(options.shape, rank, options.kv_replication));
    std::vector<int> all;
    for (int r = 0; r < test::session().size(); ++r) all.push_back(r);
    check(grid.world(), all);
    grid.world().barrier();
  }
}

TEST_F(Grid, wrong_number_of_ranks_is_refused) {
  GridOptions options = options_of();
  options.shape.tensor *= 3;
  EXPECT_THROW(ProcessGrid(test::session(), options), ConfigError);
}

/// Volumes of the busbw factors (2(n-1)/n and so on), exactly.
TEST_F(Grid, ledger_counts_calls_and_bytes) {
  ProcessGrid grid(test::session(), options_of());
  Communicator& world = grid.world();
  const int n = world.size();
  const Tensor whole = tensor(DType::BFloat16, int64_t{840} * n);
  const Tensor piece = tensor(DType::BFloat16, 840);
  grid.ledger().reset();
  world.all_reduce(whole, ReduceOp::Sum).wait();
  world.all_reduce(piece, ReduceOp::Max).wait();
  world.all_gather(piece, whole).wait();
  world.reduce_scatter(whole, piece, ReduceOp::Sum).wait();
  world.broadcast(piece, 0).wait();
  world.reduce(piece, ReduceOp::Sum, 0).wait();
  if (world.rank() == 0) world.send(piece, 1, 0).wait();
  if (world.rank() == 1) world.recv(piece, 0, 0).wait();
  world.barrier();
  const auto entries = grid.ledger().snapshot();
  const auto entry = [&](Operation op) {
    const auto found = entries.find({"world", op});
    return found == entries.end() ? LedgerEntry{} : found->second;
  };
  const double all = 1680.0 * n;
  const double part = static_cast<double>(n - 1) / n;
  EXPECT_EQ(entry(Operation::AllReduce).calls, 2);
  EXPECT_EQ(entry(Operation::AllReduce).payload_bytes, 1680 * n + 1680);
  EXPECT_DOUBLE_EQ(entry(Operation::AllReduce).sent_bytes, 2 * part * (all + 1680));
  EXPECT_DOUBLE_EQ(entry(Operation::AllGather).sent_bytes, part * all);
  EXPECT_DOUBLE_EQ(entry(Operation::ReduceScatter).sent_bytes, part * all);
  EXPECT_EQ(entry(Operation::Broadcast).sent_bytes, 1680);
  EXPECT_EQ(entry(Operation::Reduce).sent_bytes, 1680);
  EXPECT_EQ(entry(Operation::Send).sent_bytes, world.rank() == 0 ? 1680 : 0);
  EXPECT_EQ(entry(Operation::Recv).payload_bytes, world.rank() == 1 ? 1680 : 0);
  EXPECT_EQ(entry(Operation::Recv).sent_bytes, 0);
  EXPECT_EQ(entry(Operation::Barrier).calls, 1);
  double sum = 0;
  for (const auto& [key, value] : entries) sum += value.sent_bytes;
  EXPECT_DOUBLE_EQ(grid.ledger().total_sent_bytes(), sum);
  grid.world().barrier();
}

/// Ten collectives, each delayed by 20 ms, behind 400 ms of something else: nearly all of their time is hidden. Waited
/// for at once, none is.
TEST_F(Grid, data_parallel_collectives_overlap) {
  GridOptions options = options_of();
  options.delay_spec = "dp:fixed:20ms";
  ProcessGrid grid(test::session(), options);
  const Tensor t = tensor(DType::Float32, 10000);
  grid.world().barrier();
  const auto exposed_s = [&](std::chrono::milliseconds computing) {
    grid.ledger().reset();
    std::fill_n(t.as<float>(), t.numel(), 1.0f);
    std::vector<Work> works;
    for (int i = 0; i < 10; ++i)
      works.push_back(grid.data().all_reduce(t.range(i * 1000, i * 1000 + 1000), ReduceOp::Sum));
    std::this_thread::sleep_for(computing);
    for (Work& work : works) work.wait();
    EXPECT_EQ(t.as<float>()[9999], static_cast<float>(grid.data().size()));
    const LedgerEntry entry = grid.ledger().snapshot().at({"dp", Operation::AllReduce});
    EXPECT_GE(entry.busy_s, 0.2);
    EXPECT_EQ(entry.calls, 10);
    return grid.ledger().total_exposed_s("dp");
  };
  EXPECT_GE(exposed_s(std::chrono::milliseconds(0)), 0.15);
  EXPECT_LT(exposed_s(std::chrono::milliseconds(400)), 0.1);
  grid.world().barrier();
}

/// dp collectives in flight while the caller uses tp and world: the threads must not disturb each other.
TEST_F(Grid, groups_work_at_the_same_time) {
  for (const bool shared : {true, false}) {
    GridOptions options = options_of();
    options.shared_memory = shared;
    ProcessGrid grid(test::session(), options);
    const Tensor background = tensor(DType::Float64, 50000);
    const Tensor foreground = tensor(DType::Float64, 3000);
    for (int round = 0; round < 20; ++round) {
      std::fill_n(background.as<double>(), background.numel(), 1.0);
      std::fill_n(foreground.as<double>(), foreground.numel(), 1.0);
      Work first = grid.data().all_reduce(background.range(0, 25000), ReduceOp::Sum);
      Work second = grid.data().all_reduce(background.range(25000, 50000), ReduceOp::Sum);
      grid.tensor().all_reduce(foreground, ReduceOp::Sum).wait();
      grid.world().all_reduce(foreground, ReduceOp::Max).wait();
      first.wait();
      second.wait();
      ASSERT_EQ(background.as<double>()[49999], grid.data().size());
      ASSERT_EQ(foreground.as<double>()[2999], grid.tensor().size());
    }
    grid.world().barrier();
  }
}

/// More ranks than cores: 2000 barriers end within the test's time limit, also over messages alone.
TEST_F(Grid, barriers_when_ranks_outnumber_cores) {
  for (const bool shared : {true, false}) {
    GridOptions options = options_of();
    options.shared_memory = shared;
    ProcessGrid grid(test::session(), options);
    for (int i = 0; i < 2000; ++i) grid.world().barrier();
    EXPECT_EQ(grid.ledger().snapshot().at({"world", Operation::Barrier}).calls, 2000);
  }
}

/// Inside a host, differing calls are told apart before any data moves.
TEST_F(Grid, mismatched_collectives_are_an_error) {
  if (test::session().local_size() != test::session().size()) GTEST_SKIP() << "needs all ranks on one host";
  ProcessGrid grid(test::session(), options_of());
  const Tensor t = tensor(DType::Float32, 100);
  const int64_t count = grid.world().rank() == 1 ? 99 : 100;
  EXPECT_THROW(grid.world().all_reduce(t.range(0, count), ReduceOp::Sum).wait(), RunTimeError);
}

/// Over messages, differing sizes are found by the ranks that get too little or too much.
TEST_F(Grid, mismatched_sizes_over_messages_are_an_error) {
  GridOptions options = options_of();
  options.shared_memory = false;
  ProcessGrid grid(test::session(), options);
  const Tensor t = tensor(DType::Float32, 100);
  const int64_t count = grid.world().rank() == 1 ? 99 : 100;
  EXPECT_THROW(grid.world().all_reduce(t.range(0, count), ReduceOp::Sum).wait(), RunTimeError);
}

TEST_F(Grid, fake_nodes_cut_the_host) {
  GridOptions options = options_of();
  options.fake_nodes = 2;
  ProcessGrid grid(test::session(), options);
  const int n = test::session().size();
  for (int r = 0; r < n; ++r) EXPECT_EQ(grid.nodes()[static_cast<size_t>(r)], r * 2 / n);
  grid.world().barrier();
}

TEST(MpiCures, take_effect_where_they_are_linked) {
  int length = 0;
  std::string library(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  MPI_Get_library_version(library.data(), &length);
  if (library.find("ch4:ucx") == std::string::npos) GTEST_SKIP() << "this MPI is not MPICH over UCX";
  EXPECT_EQ(mpi_cures(), "mpich-ucx: idle progress yields, finalize without flush");
}

}  // namespace
}  // namespace triax::comm

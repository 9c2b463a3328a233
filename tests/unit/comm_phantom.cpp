// One process plays a rank of a job of 512 and counts what it would send.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "comm/delay.h"
#include "comm/phantom.h"
#include "comm/process_grid.h"

namespace triax::comm {
namespace {

TEST(PhantomGrid, rehearses_a_rank_of_512) {
  GridOptions options;
  options.shape.tensor = 8;
  options.shape.pipeline = 16;
  options.shape.data = 4;
  ProcessGrid grid(PhantomRank{301, 8}, options);
  EXPECT_EQ(grid.coord(), (GridCoord{301 % 8, 0, 301 / 8 % 4, 301 / 32}));
  EXPECT_EQ(grid.world().size(), 512);
  EXPECT_EQ(grid.model_parallel().size(), 128);
  EXPECT_EQ(grid.embedding().size(), 1);
  EXPECT_EQ(grid.nodes()[301], 37);
  EXPECT_EQ(grid.pipeline().rank(), 9);

  Arena arena(grid.memory());
  const Buffer buffer = arena.allocate(DType::Float32, 1000, MemoryCategory::Workspace);
  const Tensor t = buffer.view(DType::Float32, {1000});
  std::fill_n(t.as<float>(), 1000, 3.0f);
  grid.tensor().all_reduce(t, ReduceOp::Sum).wait();
  EXPECT_EQ(t.as<float>()[999], 3.0f);  // nothing moves
  grid.data().reduce_scatter(t, t.range(0, 250), ReduceOp::Sum).wait();
  grid.pipeline().send(t, 10, 0).wait();
  grid.pipeline().recv(t, 8, 0).wait();
  EXPECT_EQ(t.as<float>()[0], 0.0f);
  grid.world().barrier();
  const auto entries = grid.ledger().snapshot();
  EXPECT_DOUBLE_EQ(entries.at({"tp", Operation::AllReduce}).sent_bytes, 2 * 7.0 / 8 * 4000);
  EXPECT_DOUBLE_EQ(entries.at({"dp", Operation::ReduceScatter}).sent_bytes, 3.0 / 4 * 4000);
  EXPECT_DOUBLE_EQ(entries.at({"pp", Operation::Send}).sent_bytes, 4000);
  EXPECT_DOUBLE_EQ(grid.ledger().total_sent_bytes(), 7000 + 3000 + 4000);
}

TEST(PhantomGrid, groups_of_one_copy_and_send_nothing) {
  ProcessGrid grid(PhantomRank{}, GridOptions{});
  float in[4] = {1, 2, 3, 4};
  float out[4] = {};
  grid.data().all_gather(Tensor(in, DType::Float32, {4}), Tensor(out, DType::Float32, {4})).wait();
  EXPECT_EQ(out[3], 4);
  grid.tensor().all_reduce(Tensor(in, DType::Float32, {4}), ReduceOp::Sum).wait();
  EXPECT_EQ(in[3], 4);
  EXPECT_EQ(grid.ledger().total_sent_bytes(), 0);
  EXPECT_EQ(grid.ledger().snapshot().at({"dp", Operation::AllGather}).calls, 1);
  EXPECT_THROW(grid.pipeline().send(Tensor(in, DType::Float32, {4}), 0, 0), std::logic_error);
}

TEST(PhantomGrid, a_receive_leaves_zeros_in_every_byte_of_the_message_and_no_other) {
  HeapProvider heap;
  GroupInfo pair;
  pair.name = "pp";
  pair.world_ranks = {0, 1};
  PhantomCommunicator group(pair, heap);
  std::vector<uint8_t> bytes(1'000'000, 7);
  for (const int64_t size : {int64_t{100}, int64_t{900'001}}) {
    std::fill(bytes.begin(), bytes.end(), uint8_t{7});
    group.recv(Tensor(bytes.data() + 3, DType::UInt8, {size}), 1, 0).wait();
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), uint8_t{0}), size);
    EXPECT_EQ(bytes[2], 7);
    EXPECT_EQ(bytes[static_cast<size_t>(size) + 3], 7);
  }
}

TEST(Ledger, bytes_sent_by_the_busbw_factors) {
  EXPECT_DOUBLE_EQ(sent_bytes(Operation::AllReduce, 1000, 4), 1500);
  EXPECT_DOUBLE_EQ(sent_bytes(Operation::AllGather, 1000, 4), 750);
  EXPECT_DOUBLE_EQ(sent_bytes(Operation::ReduceScatter, 1000, 4), 750);
  EXPECT_DOUBLE_EQ(sent_bytes(Operation::AllToAll, 1000, 4), 750);
  EXPECT_DOUBLE_EQ(sent_bytes(Operation::Broadcast, 1000, 4), 1000);
  EXPECT_DOUBLE_EQ(sent_bytes(Operation::Reduce, 1000, 4), 1000);
  EXPECT_DOUBLE_EQ(sent_bytes(Operation::Send, 1000, 4), 1000);
  EXPECT_DOUBLE_EQ(sent_bytes(Operation::Recv, 1000, 4), 0);
  EXPECT_DOUBLE_EQ(sent_bytes(Operation::AllReduce, int64_t{1} << 40, 2), 1099511627776.0);
  EXPECT_DOUBLE_EQ(sent_bytes(Operation::Broadcast, 1000, 1), 0);
}

TEST(DelaySpec, parses_rules) {
  EXPECT_EQ(parse_delay_spec(""), std::vector<DelayRule>{});
  EXPECT_EQ(parse_delay_spec("dp:fixed:20ms,all:uniform:0:500us:seed=7"),
            (std::vector<DelayRule>{{"dp", 0.02, 0.02, 0}, {"all", 0, 5e-4, 7}}));
  EXPECT_EQ(parse_delay_spec("pp:uniform:1ms:1.5s"), (std::vector<DelayRule>{{"pp", 0.001, 1.5, 0}}));
}

TEST(DelaySpec, refuses_what_it_does_not_understand) {
  for (const char* spec : {"dp", "dp:fixed", "dp:fixed:20", "dp:fixed:-1ms", "dp:sometimes:1ms", "dp:uniform:2ms:1ms",
                           "dp:uniform:0:1ms:7", "dp:uniform:0:1ms:seed=x", "dp:fixed:1ms:seed=3", ":fixed:1ms"}) {
    EXPECT_THROW(parse_delay_spec(spec), ConfigError) << spec;
  }
}

// Every collective of a group of 4 whose ranks all hold what rank 2 holds.
TEST(PhantomGrid, echoing_peers_send_what_this_rank_holds) {
  GridOptions options;
  options.shape.tensor = 4;
  ProcessGrid grid(PhantomRank{2, 8, PhantomPeers::Echo}, options);
  Communicator& tp = grid.tensor();
  const auto view = [](std::vector<float>& v) {
    return Tensor(v.data(), DType::Float32, {static_cast<int64_t>(v.size())});
  };
  std::vector<float> one{1, 2}, eight(8, 0), eight_more{0, 1, 2, 3, 4, 5, 6, 7};
  tp.all_gather(view(one), view(eight)).wait();
  EXPECT_EQ(eight, (std::vector<float>{1, 2, 1, 2, 1, 2, 1, 2}));
  tp.reduce_scatter(view(eight_more), view(one), ReduceOp::Sum).wait();
  EXPECT_EQ(one, (std::vector<float>{4, 5}));
  tp.all_to_all(view(eight_more), view(eight)).wait();
  EXPECT_EQ(eight, (std::vector<float>{4, 5, 4, 5, 4, 5, 4, 5}));
  tp.all_gather_v(view(one), view(eight), std::vector<int64_t>{2, 1, 2, 3}).wait();
  EXPECT_EQ(eight, (std::vector<float>{4, 5, 4, 4, 5, 4, 5, 5}));  // past the end of a shorter piece: as before

  std::vector<float> received(1000, 7);
  tp.recv(view(received), 1, 0).wait();
  EXPECT_GT(*std::max_element(received.begin(), received.end()), 0.05f);
  EXPECT_LT(*std::min_element(received.begin(), received.end()), -0.05f);
  for (const float x : received) EXPECT_LE(std::abs(x), 0.0625f);

  // Codes of a peer stand elsewhere in its piece: zeros, which decode to nothing.
  std::vector<uint8_t> code{9, 9}, codes(8, 5);
  tp.all_gather(Tensor(code.data(), DType::UInt8, {2}), Tensor(codes.data(), DType::UInt8, {8})).wait();
  EXPECT_EQ(codes, (std::vector<uint8_t>{0, 0, 0, 0, 9, 9, 0, 0}));
}

}  // namespace
}  // namespace triax::comm

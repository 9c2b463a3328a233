// send and recv: many messages in flight, in any order, with random delays; and what happens when nobody answers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "comm/process_grid.h"
#include "tests/mpi/mpi_world.h"

namespace triax::comm {
namespace {

enum class Way { Window, Heap, Messages };

class Messages : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override { open(""); }
  void open(const std::string& delay_spec) {
    close();
    GridOptions options;
    options.shape.pipeline = test::session().size();
    options.timeout_s = 60;
    options.shared_memory = GetParam() != Way::Messages;
    options.delay_spec = delay_spec;
    grid_ = std::make_unique<ProcessGrid>(test::session(), options);
    comm_ = &grid_->pipeline();
    arena_ = std::make_unique<Arena>(GetParam() == Way::Window ? grid_->memory() : heap_);
  }
  void close() {
    buffers_.clear();
    arena_.reset();
    if (grid_) grid_->world().barrier();
    grid_.reset();
  }
  void TearDown() override { close(); }
  Tensor tensor(int64_t bytes) {
    buffers_.push_back(arena_->allocate(DType::Int32, bytes / 4, MemoryCategory::Workspace));
    return buffers_.back().view(DType::Int32, {bytes / 4});
  }
  static int32_t mark(int from, int to, int tag, int64_t i) {
    return static_cast<int32_t>(from * 1000003 + to * 10007 + tag * 101 + i % 977);
  }
  Tensor letter(int to, int tag, int64_t bytes) {
    const Tensor t = tensor(bytes);
    for (int64_t i = 0; i < t.numel(); ++i) t.as<int32_t>()[i] = mark(comm_->rank(), to, tag, i);
    return t;
  }
  bool arrived(const Tensor& t, int from, int tag) {
    for (int64_t i = 0; i < t.numel(); ++i) {
      if (t.as<int32_t>()[i] != mark(from, comm_->rank(), tag, i)) return false;
    }
    return true;
  }

  HeapProvider heap_;
  std::unique_ptr<ProcessGrid> grid_;
  Communicator* comm_ = nullptr;
  std::unique_ptr<Arena> arena_;
  std::vector<Buffer> buffers_;
};

/// Everybody sends to everybody, 4 KiB and 1 MiB alternating (the larger one is a rendezvous in MPI), receives posted
/// and waited for in an order of each rank's own. Blocking sends would deadlock here.
TEST_P(Messages, storm_in_any_order) {
  constexpr int kTags = 6;
  const int n = comm_->size();
  const auto bytes_of = [](int tag) { return tag % 2 == 0 ? int64_t{4} << 10 : int64_t{1} << 20; };
  std::mt19937 random(static_cast<unsigned>(comm_->rank()) * 17 + 3);
  for (int round = 0; round < 3; ++round) {
    buffers_.clear();
    std::vector<std::pair<int, int>> pairs;  // (peer, tag)
    for (int peer = 0; peer < n; ++peer) {
      for (int tag = 0; tag < kTags && peer != comm_->rank(); ++tag) pairs.emplace_back(peer, tag);
    }
    std::vector<Work> sends;
    std::shuffle(pairs.begin(), pairs.end(), random);
    for (const auto& [peer, tag] : pairs) sends.push_back(comm_->send(letter(peer, tag, bytes_of(tag)), peer, tag));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    std::vector<Work> receives;
    std::vector<Tensor> inbox;
    std::shuffle(pairs.begin(), pairs.end(), random);
    for (const auto& [peer, tag] : pairs) {
      inbox.push_back(tensor(bytes_of(tag)));
      receives.push_back(comm_->recv(inbox.back(), peer, tag));
    }
    std::vector<size_t> order(pairs.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      receives[i].wait();
      EXPECT_TRUE(arrived(inbox[i], pairs[i].first, pairs[i].second)) << "from " << pairs[i].first;
    }
    for (Work& send : sends) send.wait();
  }
}

/// Messages of one tag keep their order, even when the second receive is waited for first.
TEST_P(Messages, same_tag_matches_in_order) {
  const int n = comm_->size();
  const int next = (comm_->rank() + 1) % n;
  const int previous = (comm_->rank() + n - 1) % n;
  const Tensor a = letter(next, 1, 4096);
  const Tensor b = letter(next, 2, 4096);
  Work send_a = comm_->send(a, next, 5);
  Work send_b = comm_->send(b, next, 5);
  const Tensor first = tensor(4096);
  const Tensor second = tensor(4096);
  Work recv_first = comm_->recv(first, previous, 5);
  Work recv_second = comm_->recv(second, previous, 5);
  recv_second.wait();
  EXPECT_TRUE(arrived(second, previous, 2));
  recv_first.wait();
  EXPECT_TRUE(arrived(first, previous, 1));
  send_a.wait();
  send_b.wait();
}

/// Neighbours exchange in both directions at once while every operation is delayed at random.
TEST_P(Messages, crossing_directions_with_random_delays) {
  open("pp:uniform:0:2ms:seed=11");
  const int n = comm_->size();
  const int next = (comm_->rank() + 1) % n;
  const int previous = (comm_->rank() + n - 1) % n;
  for (int round = 0; round < 8; ++round) {
    buffers_.clear();
    const int64_t bytes = round % 2 == 0 ? int64_t{1} << 20 : int64_t{4} << 10;
    Work up = comm_->send(letter(next, round, bytes), next, round);
    Work down = comm_->send(letter(previous, 100 + round, bytes), previous, 100 + round);
    const Tensor from_below = tensor(bytes);
    const Tensor from_above = tensor(bytes);
    comm_->recv(from_above, next, 100 + round).wait();
    comm_->recv(from_below, previous, round).wait();
    EXPECT_TRUE(arrived(from_above, next, 100 + round));
    EXPECT_TRUE(arrived(from_below, previous, round));
    up.wait();
    down.wait();
  }
}

/// More messages than a ring has room for, all received late.
TEST_P(Messages, thousands_in_flight) {
  if (comm_->rank() > 1) return;
  constexpr int kMessages = 1500;
  const int peer = 1 - comm_->rank();
  std::vector<Work> works;
  const Tensor source = tensor(int64_t{4} * kMessages);
  const Tensor target = tensor(int64_t{4} * kMessages);
  for (int i = 0; i < kMessages; ++i) {
    source.as<int32_t>()[i] = i * 3 + comm_->rank();
    if (comm_->rank() == 1) works.push_back(comm_->recv(target.range(i, i + 1), peer, 0));
    if (comm_->rank() == 0) works.push_back(comm_->send(source.range(i, i + 1), peer, 0));
    // The receiver starts to wait while the sender is stuck for lack of room.
    if (comm_->rank() == 1 && i == kMessages - 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (Work& work : works) work.wait();
  if (comm_->rank() == 0) return;
  for (int i = 0; i < kMessages; ++i) EXPECT_EQ(target.as<int32_t>()[i], i * 3);
}

/// A large message arrives although its sender computes all the time: it makes no MPI call until the receiver has
/// reported the arrival by a file.
TEST_P(Messages, progress_while_the_sender_computes) {
  const std::string report = "/tmp/triax_progress_" + std::to_string(getppid());
  if (comm_->rank() == 0) std::filesystem::remove(report);
  grid_->world().barrier();
  if (comm_->rank() == 0) {
    const Tensor t = letter(1, 9, int64_t{8} << 20);
    Work send = comm_->send(t, 1, 9);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!std::filesystem::exists(report) && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(std::filesystem::remove(report)) << "not arrived within 30 s";
    send.wait();
  } else if (comm_->rank() == 1) {
    const Tensor t = tensor(int64_t{8} << 20);
    comm_->recv(t, 0, 9).wait();
    EXPECT_TRUE(arrived(t, 0, 9));
    std::ofstream(report) << "here";
  }
}

TEST_P(Messages, different_sizes_are_an_error) {
  const Tensor small = tensor(64);
  const Tensor large = tensor(4096);
  if (comm_->rank() == 0) {
    comm_->send(small, 1, 3).wait();
  } else if (comm_->rank() == 1) {
    EXPECT_THROW(comm_->recv(large, 0, 3).wait(), RunTimeError);
  }
}

TEST_P(Messages, empty_message) {
  if (comm_->rank() == 0) comm_->send(tensor(0), 1, 0).wait();
  if (comm_->rank() == 1) comm_->recv(tensor(0), 0, 0).wait();
}

std::string name_of_way(const testing::TestParamInfo<Way>& tested) {
  switch (tested.param) {
    case Way::Window:
      return "window";
    case Way::Heap:
      return "heap";
    case Way::Messages:
      return "messages";
  }
  return "";
}

INSTANTIATE_TEST_SUITE_P(Ways, Messages, testing::Values(Way::Window, Way::Heap, Way::Messages), name_of_way);

}  // namespace
}  // namespace triax::comm

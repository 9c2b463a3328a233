// Groups of the emulated GPUs on two ranks: deadlines, waits, and what the real libraries demand of who uses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <thread>

#include "base/flight_recorder.h"
#include "io/trace/flight.h"
#include "kernels/cuda_loader.h"
#include "tests/emulated/recorded.h"
#include "tests/mpi/parity.h"
#include "tests/mpi/shared_directory.h"

namespace triax::test {
namespace {

/// Two ranks, one group "dp" on the device.
struct Pair {
  explicit Pair(double timeout_s, FlightRecorder* flight = nullptr)
      : device(session(), "cuda-emulated", 1),
        grid(session(), options(timeout_s, flight), device.groups()),
        arena(device.get().memory()),
        buffer(arena.allocate(DType::Float32, 100, MemoryCategory::Communication)),
        t(buffer.view(DType::Float32, {100})) {
    device.get().fill(t, 1);
  }
  static comm::GridOptions options(double timeout_s, FlightRecorder* flight) {
    comm::GridOptions options;
    options.shape.data = 2;
    options.timeout_s = timeout_s;
    options.flight = flight;
    return options;
  }
  void sum() { grid.data().all_reduce(t, comm::ReduceOp::Sum).wait(); }
  train::RunDevice device;
  comm::ProcessGrid grid;
  Arena arena;
  Buffer buffer;
  Tensor t;
};

TEST(DeviceGroups, APeerThatDoesNotComeIsNamedAtTheDeadline) {
  if (session().size() != 2) return;
  SharedDirectory directory("flight");
  FlightRecorder flight;
  flight.set_rank(session().rank(), 2, "here", 1);
  flight.attach(directory.path());
  Pair pair(1, &flight);
  pair.sum();
  std::vector<float> host(100);
  pair.device.get().download(pair.t, Tensor(host.data(), DType::Float32, {100}));
  EXPECT_EQ(host[99], 2);
  if (session().rank() == 0) {
    pair.sum();
    try {
      pair.device.get().synchronize();
      ADD_FAILURE() << "the other rank never called all_reduce";
    } catch (const comm::PeerLost& lost) {
      EXPECT_THAT(lost.what(), ::testing::HasSubstr("peer lost: all_reduce #2 of group dp waited 1."));
      EXPECT_THAT(lost.what(), ::testing::HasSubstr("on dp rank 0 (world rank 0 on "));
      EXPECT_THAT(lost.what(), ::testing::HasSubstr("no answer from a member of world ranks 0 1"));
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  // The flight recorder says the same: rank 0 waits, rank 1 does not.
  const io::FlightState state = io::state_of(io::read_flight(flight_path(directory.path(), session().rank())));
  if (session().rank() == 0) {
    ASSERT_NE(state.waits(), nullptr);
    EXPECT_EQ(io::describe(*state.waits()), "all_reduce #2 of dp");
  } else {
    EXPECT_EQ(state.waits(), nullptr);
  }
}

// Three operations that each take most of the deadline are no lost peer, however long the host waits for them all.
TEST(DeviceGroups, TheDeadlineCountsAnOperationsOwnTime) {
  if (session().size() != 2) return;
  Pair pair(1.5);
  for (int i = 0; i < 3; ++i) {
    if (session().rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      pair.sum();
      pair.device.get().synchronize();
    } else {
      pair.sum();
    }
  }
  EXPECT_NO_THROW(pair.device.get().synchronize());
}

TEST(DeviceGroups, TimeBeforeTheLastPeerIsWaitNotTransfer) {
  if (session().size() != 2) return;
  constexpr double kLate_s = 0.2;
  Pair pair(60);
  pair.device.get().synchronize();
  if (session().rank() == 0) pair.sum();
  MPI_Barrier(MPI_COMM_WORLD);
  if (session().rank() == 1) {
    std::this_thread::sleep_for(std::chrono::duration<double>(kLate_s));
    pair.sum();
  }
  pair.device.get().synchronize();
  pair.grid.meet_on_device();
  const comm::LedgerEntry entry = pair.grid.ledger().snapshot().at({"dp", comm::Operation::AllReduce});
  EXPECT_EQ(entry.met_calls, 1);
  if (session().rank() == 0) {
    EXPECT_GT(entry.waited_s, kLate_s / 2);
    EXPECT_LE(entry.waited_s, entry.busy_s);
  } else {
    EXPECT_EQ(entry.waited_s, 0);
  }
}

TEST(DeviceGroups, AnElementTypeThatNcclDoesNotKnowIsRefused) {
  if (session().size() != 2) return;
  Pair pair(60);
  const Tensor t(pair.t.data(), DType::Float8E4M3, {100});
  EXPECT_THROW(pair.grid.data().all_reduce(t, comm::ReduceOp::Sum), std::logic_error);
}

/// A pipeline of two ranks on the device: four communicators, one for each direction and kind of message.
struct Stages {
  explicit Stages(double timeout_s)
      : device(session(), "cuda-emulated", 1),
        grid(session(), options(timeout_s), device.groups()),
        arena(device.get().memory()),
        here(arena.allocate(DType::Float32, 200, MemoryCategory::Communication)) {
    device.get().fill(half(0), session().rank());
    device.get().fill(half(1), -1);
  }
  static comm::GridOptions options(double timeout_s) {
    comm::GridOptions options;
    options.shape.pipeline = 2;
    options.timeout_s = timeout_s;
    return options;
  }
  Tensor half(int which) const { return here.view(DType::Float32, {200}).range(100 * which, 100 * (which + 1)); }
  float first_of(const Tensor& t) {
    std::vector<float> host(100);
    device.get().download(t, Tensor(host.data(), DType::Float32, {100}));
    return host[0];
  }
  train::RunDevice device;
  comm::ProcessGrid grid;
  Arena arena;
  Buffer here;
};

// NCCL connects two ranks at their first message, and the host waits for the other meanwhile: were that not done when
// the group is made, both would stand in their receives.
TEST(DeviceGroups, BothMayPostTheirFirstReceiveAhead) {
  if (session().size() != 2) return;
  Stages stages(20);
  const int other = 1 - session().rank();
  comm::Work received = stages.grid.pipeline().recv(stages.half(1), other, 0);
  comm::Work sent = stages.grid.pipeline().send(stages.half(0), other, 0);
  received.wait();
  sent.wait();
  EXPECT_EQ(stages.first_of(stages.half(1)), other);
}

// Aborting one communicator waits for the operations of all others, and they for their own abortion.
TEST(DeviceGroups, AllCommunicatorsAreAbortedAtTheSameTime) {
  if (session().size() != 2) return;
  Stages stages(1);
  if (session().rank() == 0) {
    comm::Work activation = stages.grid.pipeline().recv(stages.half(0), 1, 0);
    comm::Work gradient = stages.grid.pipeline().recv(stages.half(1), 1, 1);
    activation.wait();
    gradient.wait();
    EXPECT_THROW(stages.device.get().synchronize(), comm::PeerLost);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// The same where it is not a deadline that ends the run but an error.
TEST(DeviceGroups, AnErrorWithOperationsInFlightUnwinds) {
  if (session().size() != 2) return;
  try {
    Stages stages(60);
    Tensor t = stages.half(0), u = stages.half(1);
    if (session().rank() == 0) {
      static_cast<void>(stages.grid.pipeline().recv(t, 1, 0));
      static_cast<void>(stages.grid.pipeline().recv(u, 1, 1));
    }
    throw std::runtime_error("an error");
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "an error");
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// The driver reads them once, when it is first asked for a GPU.
TEST(DeviceGroups, TheDriverStartsWithWhatTheGroupsNeed) {
  const train::RunDevice device(session(), "cuda-emulated", 1);
  using Settings = const emulated::DriverSettings* (*)();
  const auto settings =
      reinterpret_cast<Settings>(kernels::cuda_module_symbol(kernels::CudaModule::Emulated, "triax_emulated_driver"));
  EXPECT_EQ(settings()->module_loading, "EAGER");
  EXPECT_EQ(settings()->max_connections, "32");
}

}  // namespace
}  // namespace triax::test

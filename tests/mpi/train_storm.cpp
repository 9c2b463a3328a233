// Deadlock storm: the executor runs programs of every schedule with a fake model, random delays in compute and in
// messages, messages that are rendezvous (inside shared memory and as MPI messages of 1 MiB) and small ones. Every
// message says who made it. Run with 5 to 8 ranks: together they hold every pipeline length from 2 to 8.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/philox.h"
#include "comm/process_grid.h"
#include "parallel/schedule.h"
#include "tests/mpi/mpi_world.h"
#include "train/executor.h"
#include "train/staging.h"

namespace triax::test {
namespace {

using parallel::Op;
using parallel::OpKind;
using parallel::ScheduleKind;
using train::ReceiveAhead;

enum class Transport { SharedMemory, Messages };

/// Computes nothing: checks what it gets, sleeps a little, and makes a message that says where it comes from.
class FakeStage final : public train::StageWork {
 public:
  FakeStage(const parallel::Program& program, int position, Arena& arena, const train::MessageShape& shape,
            uint32_t seed)
      : program_(program), position_(position), arena_(arena), shape_(shape), seed_(seed) {}

  Buffer compute(const Op& op, Buffer input) override {
    done_.push_back(op);
    if (op.kind == OpKind::BackwardWeight) {
      EXPECT_FALSE(input);
      return Buffer();
    }
    const int stage = program_.layers.virtual_stage(position_, op.chunk);
    const bool forward = op.kind == OpKind::Forward;
    const int from = forward ? stage - 1 : stage + 1;
    const bool has_input = from >= 0 && from < program_.layers.num_virtual_stages();
    EXPECT_EQ(static_cast<bool>(input), has_input);
    if (input) check(input, stamp(from, op.micro_batch, forward));
    std::this_thread::sleep_for(std::chrono::microseconds(draw() % 300));
    const int to = forward ? stage + 1 : stage - 1;
    if (to < 0 || to >= program_.layers.num_virtual_stages()) return Buffer();
    Buffer output = arena_.allocate(shape_.dtype, shape_.rows * shape_.cols, MemoryCategory::Communication);
    auto* values = static_cast<float*>(output.data());
    std::fill_n(values, shape_.rows * shape_.cols, stamp(stage, op.micro_batch, forward));
    return output;
  }
  void update(const Op& op) override { done_.push_back(op); }
  const std::vector<Op>& done() const { return done_; }

 private:
  static float stamp(int stage, int micro_batch, bool forward) {
    return static_cast<float>(stage * 1000 + micro_batch) + (forward ? 0.0f : 0.5f);
  }
  void check(const Buffer& input, float expected) const {
    const auto* values = static_cast<const float*>(input.data());
    const int64_t n = shape_.rows * shape_.cols;
    EXPECT_EQ(std::count(values, values + n, expected), n) << "expected " << expected << ", got " << values[0];
  }
  uint32_t draw() { return philox4x32({draws_++, 0, 0, 0}, {seed_, 0})[0]; }

  const parallel::Program& program_;
  int position_;
  Arena& arena_;
  train::MessageShape shape_;
  uint32_t seed_, draws_ = 0;
  std::vector<Op> done_;
};

parallel::Program program_of(ScheduleKind kind, int p, int v, int m, int group = 0) {
  parallel::ProgramOptions options;
  options.schedule = {kind, p, v, m, group};
  options.layers = parallel::make_layer_map(int64_t{p} * v, parallel::placement_of(options.schedule), 0, 0, {});
  return parallel::make_training_program(options);
}

bool is_message(const Op& op) {
  return op.kind == OpKind::SendActivation || op.kind == OpKind::RecvActivation || op.kind == OpKind::SendGradient ||
         op.kind == OpKind::RecvGradient;
}

void run_program(comm::ProcessGrid& grid, const parallel::Program& program, const train::MessageShape& shape,
                 ReceiveAhead ahead) {
  SCOPED_TRACE(fmt::format("{} p{} v{} m{}, {} rows", program.schedule, program.pipeline, program.chunks,
                           program.num_micro_batches, shape.rows));
  Arena arena(grid.memory());
  const int position = grid.coord().pipeline;
  FakeStage stage(program, position, arena, shape, static_cast<uint32_t>(grid.world_rank() + shape.rows));
  const std::vector<Op>& ops = program.positions[static_cast<size_t>(position)];
  const auto device = kernels::make_cpu_device({1});
  {
    train::Executor executor(ops, program.layers, program.num_micro_batches, grid.pipeline(), *device, arena, shape,
                             ahead, train::staging_buffers(program, ahead));
    executor.run(stage);
    executor.run(stage);
  }
  std::vector<Op> expected;
  for (int round = 0; round < 2; ++round) {
    std::copy_if(ops.begin(), ops.end(), std::back_inserter(expected), [](const Op& op) { return !is_message(op); });
  }
  EXPECT_EQ(stage.done(), expected);  // order executed = program
  EXPECT_EQ(arena.ledger().live_total, 0);
}

void storm(int p, Transport transport) {
  comm::GridOptions options;
  options.shape.pipeline = p;
  options.shape.data = session().size() / p;
  options.timeout_s = 60;
  options.shared_memory = transport == Transport::SharedMemory;
  options.delay_spec = "pp:uniform:0:200us:seed=3";
  comm::ProcessGrid grid(session(), options);
  const train::MessageShape small{DType::Float32, 16, 64};    // 4 KiB
  const train::MessageShape large{DType::Float32, 4096, 64};  // 1 MiB
  for (const ReceiveAhead ahead : {ReceiveAhead::None, ReceiveAhead::OneAhead}) {
    for (const auto& shape : {small, large}) {
      if (ahead == ReceiveAhead::None && shape.rows == large.rows) continue;  // time
      for (const int m : {1, p + 1}) {
        run_program(grid, program_of(ScheduleKind::GPipe, p, 1, m), shape, ahead);
        run_program(grid, program_of(ScheduleKind::OneFOneB, p, 1, m), shape, ahead);
      }
      for (int v = 2; v <= 4; ++v) run_program(grid, program_of(ScheduleKind::Interleaved, p, v, p), shape, ahead);
      // More than one group; and a group so long that stages send ahead of what their peers receive.
      run_program(grid, program_of(ScheduleKind::Interleaved, p, 2, 2 * p), shape, ahead);
      run_program(grid, program_of(ScheduleKind::Interleaved, p, 2, 4 * p, 4 * p), shape, ahead);
      run_program(grid, program_of(ScheduleKind::ZeroBubbleH1, p, 1, p + 1), shape, ahead);
      run_program(grid, program_of(ScheduleKind::ZeroBubbleH2, p, 1, 2 * p), shape, ahead);
      run_program(grid, program_of(ScheduleKind::ZeroBubbleV, p, 2, 2 * p), shape, ahead);
    }
  }
}

TEST(Storm, no_schedule_deadlocks_at_any_pipeline_length_that_divides_the_ranks) {
  for (int p = 2; p <= session().size(); ++p) {
    if (session().size() % p != 0 || (session().size() == 8 && p == 2)) continue;  // 2: with 6 ranks
    storm(p, Transport::SharedMemory);
    storm(p, Transport::Messages);
  }
}

TEST(Executor, a_peer_that_never_sends_ends_the_run_within_the_deadline) {
  comm::GridOptions options;
  options.shape.pipeline = session().size();
  options.timeout_s = 1;
  comm::ProcessGrid grid(session(), options);
  Arena arena(grid.memory());
  if (grid.coord().pipeline == 1) {
    const parallel::Program program = program_of(ScheduleKind::OneFOneB, session().size(), 1, 1);
    const train::MessageShape shape{DType::Float32, 16, 64};
    FakeStage stage(program, 1, arena, shape, 0);
    std::vector<Op> first_receive;
    for (const Op& op : program.positions[1]) {
      if (first_receive.empty() && op.kind == OpKind::RecvActivation) first_receive.push_back(op);
    }
    const auto device = kernels::make_cpu_device({1});
    train::Executor executor(first_receive, program.layers, 1, grid.pipeline(), *device, arena, shape,
                             ReceiveAhead::OneAhead, 2);
    EXPECT_THROW(executor.run(stage), comm::PeerLost);
  }
}

}  // namespace
}  // namespace triax::test

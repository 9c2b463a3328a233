// A checkpoint that is copied beside the training on a GPU holds the state of its own step, although the copies come as
// late as the program allows: whatever changes that state waits for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "comm/compression/options.h"
#include "io/checkpoint/index.h"
#include "io/checkpoint/verify.h"
#include "kernels/cuda_loader.h"
#include "tests/emulated/recorded.h"
#include "tests/mpi/mpi_world.h"
#include "tests/mpi/shared_directory.h"
#include "tests/mpi/train_harness.h"
#include "train/checkpointing.h"

namespace triax::test {
namespace {

using ::testing::HasSubstr;

std::string content(const std::string& directory) {
  io::CheckpointReader reader(io::resolve_checkpoint(directory));
  return io::content_hash(reader);
}

io::RunOptions options_of(const std::string& save) {
  io::RunOptions options = tiny_options({.model = TinyModel::T1, .dp = 2});
  options.control.precision = io::Precision::Bf16;
  options.control.device = "cuda-emulated";
  options.control.save = options.control.load = save;
  options.parallel.zero_stage = 1;
  return options;
}

/// While it lives the copies, whose stream is the one made last, come only when another stream waits for them.
struct CopiesHeld {
  CopiesHeld()
      : order(*reinterpret_cast<std::atomic<emulated::StreamOrder>* (*)()>(
            kernels::cuda_module_symbol(kernels::CudaModule::Emulated, "triax_emulated_stream_order"))()) {
    order = emulated::StreamOrder::NewestHeld;
  }
  ~CopiesHeld() { order = emulated::StreamOrder::Random; }
  CopiesHeld(const CopiesHeld&) = delete;
  CopiesHeld& operator=(const CopiesHeld&) = delete;
  std::atomic<emulated::StreamOrder>& order;
};

/// Content of the checkpoint of the second step; when it is copied beside, a whole step follows before any copy that
/// nothing on the GPU waits for.
std::string saved_second(io::RunOptions options, bool beside) {
  options.control.async_save = beside;
  TinyRun run(session(), options);
  train::Checkpointing checkpoints(run.options(), {}, run.trainer(), run.grid(), run.device(), run.arena());
  checkpoints.prepare();
  checkpoints.load_or_initialize();
  run.step();
  run.step();
  if (beside) {
    {
      const CopiesHeld held;
      EXPECT_THAT(checkpoints.save({}, "interval"), HasSubstr("copies begun"));
      run.step();
    }
    EXPECT_THAT(checkpoints.finish(), HasSubstr("saved iteration 2"));
  } else {
    EXPECT_THAT(checkpoints.save({}, "interval"), HasSubstr("saved iteration 2"));
  }
  return content(options.control.save);
}

TEST(CudaCheckpoint, CopiesBesideTheTrainingHoldTheirOwnStep) {
  const SharedDirectory directory("cuda-checkpoint");
  // The optimizer changes weights, master weights and moments; codes change what they left out before that.
  for (const auto method : {comm::CompressionMethod::None, comm::CompressionMethod::TopK,
                            comm::CompressionMethod::PowerSgd, comm::CompressionMethod::OneBitAdam}) {
    SCOPED_TRACE(name_of(method));
    const std::string name = directory.path(std::string(name_of(method)));
    const auto options = [&](const std::string& save) {
      io::RunOptions o = options_of(save);
      comm::CompressionOptions& codes = o.parallel.compression;
      codes.method = method;
      codes.density = 0.05;
      codes.min_elements = 200;
      codes.rank = 2;
      codes.warmup_steps = method == comm::CompressionMethod::OneBitAdam ? 1 : 0;
      if (method == comm::CompressionMethod::PowerSgd) o.parallel.zero_stage = 0;
      return o;
    };
    const std::string expected = saved_second(options(name + "-sync"), false);
    EXPECT_EQ(saved_second(options(name + "-beside"), true), expected);
  }
}

}  // namespace
}  // namespace triax::test

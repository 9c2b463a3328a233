#include "train/rehearsed_step.h"

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "kernels/null_device.h"
#include "train/program_builder.h"
#include "train/trainer.h"

namespace triax::train {
namespace {

/// Micro-batches of one step.
std::vector<io::MicroBatch> made_up_batches(const io::RunOptions& options) {
  io::MicroBatch batch;
  const int64_t samples = options.batch.micro_batch_size;
  const int64_t tokens = options.model.seq_length * samples;
  for (int64_t row = 0; row < tokens; ++row) {
    batch.tokens.push_back(static_cast<int32_t>(row * 7919 % options.model.vocab_size));
    batch.targets.push_back(static_cast<int32_t>((row * 7919 + 104729) % options.model.vocab_size));
    batch.positions.push_back(static_cast<int32_t>(row / samples));
  }
  batch.sample_ids.resize(static_cast<size_t>(samples));
  return std::vector<io::MicroBatch>(static_cast<size_t>(options.batch.num_micro_batches), batch);
}

}  // namespace

RehearsedStep rehearse_step(const io::RunOptions& options, comm::PhantomRank rank, Rehearsal how) {
  using Stands = kernels::NullDevice::Stands;
  const bool executed = how == Rehearsal::Executed;
  rank.peers = executed ? comm::PhantomPeers::Echo : comm::PhantomPeers::Silent;
  const std::unique_ptr<kernels::Device> device =
      executed ? kernels::make_cpu_device({std::max(1, options.control.threads)})
               : std::make_unique<kernels::NullDevice>(options.control.device == "cpu" ? Stands::ForHost
                                                                                       : Stands::ForDiscrete);
  kernels::ReserveProvider memory;  // zeros: what no peer has filled is no number by chance
  Arena arena(memory);
  comm::ProcessGrid grid(rank, grid_options(options));
  io::RunOptions own = options;
  if (executed) own.control.enable_cuda_graph = false;  // it runs on the CPU, which launches nothing
  Trainer trainer(grid, *device, arena, own, Use::Train);
  if (executed) trainer.initialize();
  const std::vector<io::MicroBatch> batches = made_up_batches(options);
  RehearsedStep step;
  const Stopwatch watch;
  trainer.train_step({batches, 0, {}});
  step.elapsed_s = watch.elapsed_s();
  step.program = parallel::hash_of(trainer.program());
  step.traffic = trainer.communication().by_group();
  step.memory = arena.ledger();
  step.alignment = trainer.store().numel();
  for (const parallel::Parameter& p : trainer.store().parameters()) step.alignment -= p.numel;
  return step;
}

}  // namespace triax::train

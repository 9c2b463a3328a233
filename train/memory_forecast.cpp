#include "train/memory_forecast.h"

#include <fmt/format.h>

#include "comm/process_grid.h"
#include "kernels/null_device.h"
#include "train/checkpointing.h"
#include "train/program_builder.h"
#include "train/trainer.h"

namespace triax::train {
namespace {

std::vector<io::MicroBatch> empty_batches(const io::RunOptions& options) {
  io::MicroBatch batch;
  const auto tokens = static_cast<size_t>(options.model.seq_length * options.batch.micro_batch_size);
  batch.tokens.resize(tokens);
  batch.targets.resize(tokens);
  batch.positions.resize(tokens);
  batch.sample_ids.resize(static_cast<size_t>(options.batch.micro_batch_size));
  return std::vector<io::MicroBatch>(static_cast<size_t>(options.batch.num_micro_batches), batch);
}

}  // namespace

MemoryForecast forecast_memory(const io::RunOptions& asked, int world_rank) {
  io::RunOptions options = asked;
  if (options.control.save.empty()) options.control.save = "somewhere";  // memory does not depend on where
  using Stands = kernels::NullDevice::Stands;
  kernels::NullDevice device(options.control.device == "cpu" ? Stands::ForHost : Stands::ForDiscrete);
  Arena arena(device.memory());
  comm::ProcessGrid grid(comm::PhantomRank{world_rank, 8}, grid_options(options));
  Trainer trainer(grid, device, arena, options, Use::Train);
  const Checkpointing checkpoints(options, {}, trainer, grid, device, arena);  // takes the staging of --async-save
  const std::vector<io::MicroBatch> batches = empty_batches(options);
  trainer.train_step({batches, 0, {}});
  MemoryForecast forecast;
  forecast.ledger = arena.ledger();
  for (const parallel::Parameter& p : trainer.store().parameters()) {
    forecast.parameters += p.numel;
    forecast.vocabulary_padding += p.numel - p.true_numel();
  }
  forecast.alignment = trainer.store().numel() - forecast.parameters;
  forecast.peak_op = trainer.executor().peak_op();
  if (forecast.peak_op >= 0) {
    const auto& ops = trainer.program().positions[static_cast<size_t>(grid.coord().pipeline)];
    const parallel::Op& op = ops[static_cast<size_t>(forecast.peak_op)];
    forecast.peak_op_text =
        fmt::format("{} chunk {} micro-batch {}", parallel::name_of(op.kind), op.chunk, op.micro_batch);
  }
  return forecast;
}

}  // namespace triax::train

#include "bench/trainer_costs.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "bench/timing.h"
#include "comm/process_grid.h"
#include "io/options/validate.h"
#include "kernels/null_device.h"
#include "train/program_builder.h"
#include "train/trainer.h"

namespace triax::bench {
namespace {

constexpr int kSteps = 40;

io::RunOptions options_of(int64_t layers, int64_t micro_batches) {
  io::RunOptions o;
  o.model.hidden_size = 64;
  o.model.num_attention_heads = o.model.num_query_groups = 4;
  o.model.kv_channels = 16;
  o.model.ffn_hidden_size = 256;
  o.model.seq_length = o.model.max_position_embeddings = 32;
  o.model.vocab_size = 128;
  o.model.num_layers = layers;
  o.batch.micro_batch_size = 1;
  o.batch.global_batch_size = micro_batches;
  o.batch.train_iters = kSteps;
  o.optimizer.lr = 1e-3;
  o.data.mock_data = true;
  o.control.precision = io::Precision::Fp32;
  io::resolve(o, 1);
  return o;
}

std::vector<io::MicroBatch> batches_of(const io::RunOptions& o) {
  io::MicroBatch batch;
  const auto tokens = static_cast<size_t>(o.model.seq_length * o.batch.micro_batch_size);
  batch.tokens.resize(tokens);
  batch.targets.resize(tokens);
  batch.positions.resize(tokens);
  batch.sample_ids.resize(static_cast<size_t>(o.batch.micro_batch_size));
  return std::vector<io::MicroBatch>(static_cast<size_t>(o.batch.num_micro_batches), batch);
}

double step_time(int64_t layers, int64_t micro_batches) {
  const io::RunOptions options = options_of(layers, micro_batches);
  kernels::NullDevice device;
  HeapProvider heap;
  Arena arena(heap);
  comm::ProcessGrid grid(comm::PhantomRank{}, train::grid_options(options));
  train::Trainer trainer(grid, device, arena, options, train::Use::Train);
  const std::vector<io::MicroBatch> batches = batches_of(options);
  std::vector<double> times;
  for (int step = 0; step < kSteps; ++step) {
    const Stopwatch watch;
    trainer.train_step({batches, 0, {}});
    if (step > 2) times.push_back(watch.elapsed_s());
  }
  return statistics(std::move(times)).median_s;
}

}  // namespace

std::map<std::string, Constant> trainer_costs() {
  // t = a + m (b + c L): four measurements, three constants; the corners give each exactly.
  constexpr double kLayers = 6, kMicroBatches = 8;
  const double t11 = step_time(1, 1), t18 = step_time(1, 8), t61 = step_time(6, 1), t68 = step_time(6, 8);
  const double c = std::max(0.0, (t68 - t18 + t61 - t11) / ((kMicroBatches + 1) * (kLayers - 1)));
  const double b = std::max(0.0, ((t18 - t11) + (t68 - t61)) / (2 * (kMicroBatches - 1)) - c * (kLayers + 1) / 2);
  const double a = std::max(0.0, (t11 + t18 + t61 + t68) / 4 - (kMicroBatches + 1) / 2 * (b + c * (kLayers + 1) / 2));
  const auto fitted = [](double value) {
    return Constant{value, Origin::Fitted, "steps of a trainer whose device computes nothing"};
  };
  return {{"trainer_step_s", fitted(a)}, {"trainer_micro_batch_s", fitted(b)}, {"trainer_layer_s", fitted(c)}};
}

}  // namespace triax::bench

// Models that Hugging Face's transformers wrote compute the logits that transformers computed (fixtures made by
// tests/fixtures/huggingface/make_fixtures.py), to 1e-4.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "io/hugging_face/checkpoint_tensors.h"
#include "io/options/validate.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/unit/temporary_directory.h"
#include "train/batch_source.h"
#include "train/checkpoint_pieces.h"
#include "train/program_builder.h"
#include "train/trainer.h"

namespace triax::train {
namespace {

std::string fixture(const std::string& name) {
  return std::string(TRIAX_SOURCE_DIR) + "/tests/fixtures/huggingface/" + name;
}

/// Logits [tokens][V] of the imported model, in fp32.
std::vector<std::vector<float>> logits_of(const std::string& checkpoint, const std::vector<int32_t>& tokens) {
  io::CheckpointReader reader(io::resolve_checkpoint(checkpoint));
  io::RunOptions options;
  options.model = reader.header().weights.model;
  options.model.seq_length = static_cast<int64_t>(tokens.size());
  options.batch.micro_batch_size = options.batch.global_batch_size = 1;
  options.control.skip_train = true;
  options.control.precision = io::Precision::Fp32;
  io::resolve(options, 1, io::Purpose::Plan);
  kernels::CpuDevice device({.threads = 1});
  Arena arena(device.memory());
  comm::ProcessGrid grid(comm::PhantomRank{}, grid_options(options));
  Trainer trainer(grid, device, arena, options, Use::Evaluate);
  for (const io::Piece& piece : pieces_to_load(trainer, reader, WithOptimizer::No)) reader.read(piece);
  trainer.weights_changed();
  io::MicroBatch batch;
  batch.tokens = tokens;
  batch.targets.resize(tokens.size());
  batch.positions.resize(tokens.size());
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  batch.sample_ids.resize(1);
  model::Chunk& chunk = *trainer.chunks().front();
  const auto state = chunk.make_state();
  std::vector<std::vector<float>> rows;
  for (size_t row = 0; row < tokens.size(); ++row) {
    rows.emplace_back(static_cast<size_t>(options.model.vocab_size));
    chunk.forward_logits(*state, view_of(batch), Buffer(), static_cast<int64_t>(row),
                         Tensor(rows.back().data(), DType::Float32, {options.model.vocab_size}));
    device.synchronize();
  }
  return rows;
}

void expect_logits(const std::string& name) {
  const test::TemporaryDirectory work;
  const io::HubModel hub(fixture(name));
  io::CheckpointHeader header;
  header.weights.model = hub.config().model;
  header.weights.dtype = DType::Float32;
  io::CheckpointSink sink(work.path(), header, 0);
  hub.copy_to(sink, DType::Float32);
  sink.commit();
  const nlohmann::json golden = nlohmann::json::parse(test::read_file(fixture(name) + "/logits.json"));
  const auto tokens = golden["tokens"].get<std::vector<int32_t>>();
  const auto found = logits_of(work.path(), tokens);
  double worst = 0, largest = 0;
  for (size_t row = 0; row < tokens.size(); ++row) {
    for (size_t id = 0; id < found[row].size(); ++id) {
      const double wanted = golden["logits"][row][id];
      worst = std::max(worst, std::abs(wanted - static_cast<double>(found[row][id])));
      largest = std::max(largest, std::abs(wanted));
    }
  }
  EXPECT_LT(worst, 1e-4);
  EXPECT_GT(largest, 1);  // logits worth comparing
  ::testing::Test::RecordProperty("worst", std::to_string(worst));
}

TEST(HubLogits, gpt2) { expect_logits("gpt2"); }
TEST(HubLogits, llama) { expect_logits("llama"); }

}  // namespace
}  // namespace triax::train

#include "train/text_generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "train/batch_source.h"
#include "train/checkpoint_pieces.h"
#include "train/host_values.h"

namespace triax::train {
namespace {

io::Precision precision_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return io::Precision::Fp64;
    case DType::BFloat16:
      return io::Precision::Bf16;
    case DType::Float16:
      return io::Precision::Fp16;
    default:
      return io::Precision::Fp32;
  }
}

/// How many of the ranked probabilities (descending, sum 1) sum to p or more.
size_t nucleus(std::span<const double> probabilities, double p) {
  double sum = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    sum += probabilities[i];
    if (sum >= p) return i + 1;
  }
  return probabilities.size();
}

}  // namespace

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, uint64_t index) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  if (options.temperature == 0) return order.front();
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  std::vector<double> probability(order.size());
  double sum = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    probability[i] =
        std::exp((static_cast<double>(logit(order[i])) - static_cast<double>(logit(order[0]))) / options.temperature);
    sum += probability[i];
  }
  for (double& p : probability) p /= sum;
  const size_t kept = nucleus(probability, options.top_p);
  const PhiloxCounter counter{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0};
  const PhiloxKey key{static_cast<uint32_t>(options.seed), static_cast<uint32_t>(options.seed >> 32)};
  const double total = std::accumulate(probability.begin(), probability.begin() + static_cast<ptrdiff_t>(kept), 0.0);
  double left = uniform_from(philox4x32(counter, key)[0]) * total;
  for (size_t i = 0; i + 1 < kept; ++i) {
    left -= probability[i];
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

io::RunOptions generation_options(const io::WeightsHeader& file, int tensor, int pipeline, int64_t context) {
  io::RunOptions options;
  options.model = file.model;
  options.model.seq_length = std::min(context, file.model.seq_length);
  options.parallel.grid.tensor = tensor;
  options.parallel.grid.pipeline = pipeline;
  options.batch.micro_batch_size = options.batch.global_batch_size = 1;
  options.control.precision = precision_of(file.dtype);
  return options;
}

TextGenerator::TextGenerator(comm::ProcessGrid& grid, kernels::Device& device, Arena& arena,
                             const io::RunOptions& options, io::CheckpointReader& weights)
    : grid_(&grid),
      device_(&device),
      arena_(&arena),
      options_(options),
      trainer_(grid, device, arena, options, Use::Evaluate),
      state_(trainer_.chunks().front()->make_state()),
      logits_(static_cast<size_t>(options.model.vocab_size)),
      loss_buffer_(arena.allocate(DType::Float64, 1, MemoryCategory::Workspace)),
      upload_(device, arena, 1, 1, options.model.seq_length) {
  ensure(grid.shape().data == 1 && options.parallel.chunks == 1, "TextGenerator: one replica, one chunk per stage");
  for (const io::Piece& piece : pieces_to_load(trainer_, weights, WithOptimizer::No))
    read_piece(weights, piece, device);
  trainer_.weights_changed();
  const auto s = static_cast<size_t>(options.model.seq_length);
  batch_.tokens.resize(s);
  batch_.targets.resize(s);
  batch_.positions.resize(s);
  batch_.sample_ids.resize(1);
  std::iota(batch_.positions.begin(), batch_.positions.end(), 0);
}

void TextGenerator::generate(std::vector<int32_t>& tokens, int64_t count, const SamplingOptions& sampling,
                             int32_t stop) {
  const auto window = static_cast<size_t>(options_.model.seq_length);
  for (int64_t i = 0; i < count; ++i) {
    const size_t length = std::min(tokens.size(), window);
    const int32_t token = next_token(std::span<const int32_t>(tokens).last(length), sampling, static_cast<uint64_t>(i));
    tokens.push_back(token);
    if (token == stop) return;
  }
}

void TextGenerator::fill_batch(std::span<const int32_t> context) {
  std::fill(batch_.tokens.begin(), batch_.tokens.end(), 0);  // causal: what follows the context has no effect on it
  std::copy(context.begin(), context.end(), batch_.tokens.begin());
}

int32_t TextGenerator::next_token(std::span<const int32_t> context, const SamplingOptions& sampling, uint64_t index) {
  fill_batch(context);
  const parallel::MicroBatch batch = upload_.view(0, 0, batch_);
  model::Chunk& chunk = *trainer_.chunks().front();
  comm::Communicator& pipeline = grid_->pipeline();
  const DType dtype = io::compute_dtype(options_.control.precision);
  const int64_t rows = options_.model.seq_length;
  const int64_t cols = options_.model.hidden_size;
  Buffer input;
  if (!chunk.first()) {
    input = arena_->allocate(dtype, rows * cols, MemoryCategory::Communication);
    pipeline.recv(input.view(dtype, {rows, cols}), pipeline.rank() - 1, 0).wait();
  }
  int32_t token = 0;
  if (chunk.last()) {
    const Tensor logits(logits_.data(), DType::Float32, {static_cast<int64_t>(logits_.size())});
    chunk.forward_logits(*state_, batch, std::move(input), static_cast<int64_t>(context.size()) - 1, logits);
    token = sample_token(logits_, sampling, index);
  } else {
    const Buffer output = chunk.forward(*state_, batch, std::move(input), parallel::Mode::Evaluate,
                                        loss_buffer_.view(DType::Float64, {1}));
    pipeline.send(output.view(dtype, {rows, cols}), pipeline.rank() + 1, 0).wait();
  }
  // The slot of the batch is written anew for the next token.
  device_->synchronize();
  grid_->host(pipeline).broadcast(Tensor(&token, DType::Int32, {1}), pipeline.size() - 1).wait();
  return token;
}

}  // namespace triax::train

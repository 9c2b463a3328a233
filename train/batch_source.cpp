#include "train/batch_source.h"

#include <numeric>

namespace triax::train {
namespace {

// Tensors are views of mutable memory; no layer writes to its inputs.
template <class T>
Tensor vector_view(const std::vector<T>& values) {
  if (values.empty()) return Tensor();
  return Tensor(const_cast<T*>(values.data()), DTypeOf<T>::value, {static_cast<int64_t>(values.size())});
}

}  // namespace

BatchSource::BatchSource(const io::TokenDataset* dataset, const io::LoaderConfig& config, int64_t consumed_samples)
    : config_(config), consumed_(consumed_samples) {
  if (dataset != nullptr) {
    loader_ = std::make_unique<io::BatchLoader>(*dataset, config, consumed_samples);
    return;
  }
  const auto b = static_cast<size_t>(config.shape.micro_batch_size);
  positions_.resize(static_cast<size_t>(config.shape.num_micro_batches));
  for (io::MicroBatch& batch : positions_) {
    batch.sample_ids.resize(b);
    batch.positions.resize(static_cast<size_t>(config.seq_length) * b);
    for (size_t row = 0; row < batch.positions.size(); ++row) batch.positions[row] = static_cast<int32_t>(row / b);
  }
}

std::span<const io::MicroBatch> BatchSource::next_step() {
  if (!loader_) fill_positions();
  const std::span<const io::MicroBatch> step = loader_ ? loader_->next_step() : positions_;
  consumed_ += config_.shape.global_batch_size();
  return step;
}

void BatchSource::fill_positions() {
  for (size_t j = 0; j < positions_.size(); ++j) {
    auto& ids = positions_[j].sample_ids;
    std::iota(ids.begin(), ids.end(),
              io::first_sample_of(config_.shape, consumed_, static_cast<int64_t>(j), config_.dp_rank));
  }
}

double BatchSource::wait_s() const { return loader_ ? loader_->wait_s() : 0; }

parallel::MicroBatch view_of(const io::MicroBatch& batch) {
  parallel::MicroBatch view;
  view.token = vector_view(batch.tokens);
  view.target = vector_view(batch.targets);
  view.loss_mask = vector_view(batch.loss_mask);
  view.index.sample = vector_view(batch.sample_ids);
  view.index.position = vector_view(batch.positions);
  return view;
}

double counted_tokens(const io::MicroBatch& batch) {
  if (batch.loss_mask.empty()) return static_cast<double>(batch.targets.size());
  return std::accumulate(batch.loss_mask.begin(), batch.loss_mask.end(), 0.0,
                         [](double sum, float mask) { return sum + static_cast<double>(mask); });
}

}  // namespace triax::train

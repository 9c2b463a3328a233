#include "model/rotary.h"

#include <cmath>
#include <vector>

namespace triax::model {
namespace {

template <class T>
void fill_table(double base, kernels::Device& device, Tensor cos, Tensor sin) {
  const int64_t half = cos.cols();
  std::vector<T> cosines(static_cast<size_t>(cos.numel())), sines(cosines.size());
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
    for (int64_t position = 0; position < cos.rows(); ++position) {
      const double angle = static_cast<double>(position) * frequency;
      const auto at = static_cast<size_t>(position * half + i);
      cosines[at] = static_cast<T>(std::cos(angle));
      sines[at] = static_cast<T>(std::sin(angle));
    }
  }
  device.upload(Tensor(cosines.data(), cos.dtype(), {cos.rows(), half}), cos);
  device.upload(Tensor(sines.data(), sin.dtype(), {sin.rows(), half}), sin);
}

}  // namespace

RotaryTable::RotaryTable(const ModelConfig& model, const parallel::LayerContext& context) {
  if (model.position != PositionType::Rope) return;
  dtype_ = context.state_dtype;
  positions_ = std::max(model.max_position_embeddings, model.seq_length);
  half_ = static_cast<int64_t>(static_cast<double>(model.kv_channels) * model.rotary_percent) / 2;
  cos_ = context.arena->allocate(dtype_, positions_ * half_, MemoryCategory::Workspace);
  sin_ = context.arena->allocate(dtype_, positions_ * half_, MemoryCategory::Workspace);
  if (dtype_ == DType::Float64) {
    fill_table<double>(model.rotary_base, *context.device, cos(), sin());
  } else {
    fill_table<float>(model.rotary_base, *context.device, cos(), sin());
  }
}

}  // namespace triax::model

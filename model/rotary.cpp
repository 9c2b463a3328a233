#include "model/rotary.h"

#include <cmath>

namespace triax::model {
namespace {

template <class T>
void fill_table(double base, Tensor cos, Tensor sin) {
  const int64_t half = cos.cols();
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
    for (int64_t position = 0; position < cos.rows(); ++position) {
      const double angle = static_cast<double>(position) * frequency;
      cos.as<T>()[position * half + i] = static_cast<T>(std::cos(angle));
      sin.as<T>()[position * half + i] = static_cast<T>(std::sin(angle));
    }
  }
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
    fill_table<double>(model.rotary_base, cos(), sin());
  } else {
    fill_table<float>(model.rotary_base, cos(), sin());
  }
}

}  // namespace triax::model

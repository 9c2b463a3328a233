// What a trainer does with a parameter server: hands over its gradient, and on the server takes updates.
#include <fmt/format.h>

#include <array>

#include "train/trainer.h"

namespace triax::train {

void Trainer::build_server() {
  const io::ParallelOptions& parallel = options_.parallel;
  if (use_ != Use::Train || parallel.grad_sync != io::GradSync::ParameterServer || grid_->data().size() == 1) return;
  sync_->leave_data_to_server();
  handed_.resize(static_cast<size_t>(parallel.max_staleness + 1));
  server_ = std::make_unique<ParameterServer>(grid_->data(), grid_->model_parallel(), *device_, *arena_,
                                              store_.held_grads(), store_.held_weights(), parallel.max_staleness,
                                              [this](int64_t update) { apply_update(update); });
}

void Trainer::hand_to_server() {
  handed_[static_cast<size_t>(server_->steps()) % handed_.size()] = {now_, global_tokens()};
  device_->synchronize();
  server_->end_step();
}

/// The step block is that of the step whose gradients these are; the running step gets its own back.
void Trainer::apply_update(int64_t update) {
  const Handed& handed = handed_[static_cast<size_t>(update) % handed_.size()];
  const kernels::StepBlock running = now_;
  now_ = handed.step;
  publish_step();
  // As without a server: over dp first, then over tp and the copies of the embedding.
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) sync_->sum_tensor_partial(static_cast<int>(chunk));
  if (!sync_->plan().tied.empty()) sync_->sum_tied();
  measure_gradient(handed.tokens);
  optimizer_->step(step_);
  device_->synchronize();
  now_ = running;
  publish_step();
}

void Trainer::settle() {
  if (server_) server_->settle();
}

std::string Trainer::staleness_text() {
  if (!server_) return {};
  settle();
  const StalenessReport& mine = server_->staleness();
  int64_t largest = mine.largest;
  std::array<int64_t, 2> sums{mine.steps, mine.sum};
  grid_->world().all_reduce(Tensor(&largest, DType::Int64, {1}), comm::ReduceOp::Max).wait();
  grid_->world().all_reduce(Tensor(sums.data(), DType::Int64, {2}), comm::ReduceOp::Sum).wait();
  const double mean = sums[0] == 0 ? 0 : static_cast<double>(sums[1]) / static_cast<double>(sums[0]);
  return fmt::format("parameter server: staleness mean {:.3f}, largest {} of {} allowed, over {} steps of {} ranks",
                     mean, largest, options_.parallel.max_staleness, mine.steps, grid_->world().size());
}

}  // namespace triax::train

// What a run says when a loss or gradient is not finite.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "train/trainer.h"

namespace triax::train {

std::string Trainer::where() const {
  const comm::GridCoord& c = grid_->coord();
  return fmt::format("step {}, rank {} (tp {}, pp {}, dp {})", progress_.iteration + 1, grid_->world_rank(), c.tensor,
                     c.pipeline, c.data);
}

void Trainer::fail_nonfinite(double loss) {
  const std::string tensor = first_nonfinite(store_, *device_, *arena_);
  if (server_) {  // the other ranks may be in later steps: no words can be agreed upon
    throw RunTimeError(
        fmt::format("{}: loss or gradient norm {} in an update of the parameter server, first tensor {}; "
                    "lower --lr or --max-staleness, or set --clip-grad",
                    where(), loss, tensor.empty() ? "none on this rank" : tensor));
  }
  // The lowest rank that holds one speaks for all; the gradients of all dp replicas are equal by now.
  const int none = grid_->world().size();
  int32_t first = tensor.empty() ? none : grid_->world_rank();
  grid_->world().all_reduce(Tensor(&first, DType::Int32, {1}), comm::ReduceOp::Min).wait();
  const int64_t sample = progress_.consumed_samples;
  const std::string samples = fmt::format("samples {} to {}", sample, sample + options_.batch.global_batch_size - 1);
  std::array<char, 512> words{};
  const std::string text =
      first == none ? fmt::format("{}: the loss is {}, all gradients are finite; {}", where(), loss, samples)
                    : fmt::format(
                          "{}: gradient not finite, first tensor {}; {}. Weights are as before the step. Lower "
                          "--lr, or set --clip-grad",
                          where(), tensor, samples);
  std::strncpy(words.data(), text.c_str(), words.size() - 1);
  grid_->world()
      .broadcast(Tensor(words.data(), DType::UInt8, {static_cast<int64_t>(words.size())}), first == none ? 0 : first)
      .wait();
  if (first != none && first != grid_->world_rank()) throw ToldError(words.data());
  throw RunTimeError(words.data());
}

}  // namespace triax::train

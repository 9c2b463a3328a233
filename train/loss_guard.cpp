#include "train/loss_guard.h"

#include <fmt/format.h>

#include <algorithm>

namespace triax::train {

std::string LossGuard::add(int64_t iteration, double loss) {
  const double before = largest_;
  largest_ = std::max(largest_, loss);
  if (before <= 0 || loss <= factor_ * before) return {};
  return fmt::format(
      "step {}: the loss is {}, more than {} times the largest before it, {} (--check-for-spiky-loss). The "
      "run ends before it is saved; go on from the last checkpoint, lower --lr, set --clip-grad, or look "
      "at the samples of this step",
      iteration, loss, factor_, before);
}

}  // namespace triax::train

// A loss far above all before it is more likely a fault than learning (--check-for-spiky-loss).
#pragma once

#include <cstdint>
#include <string>

namespace triax::train {

class LossGuard {
 public:
  explicit LossGuard(double factor) : factor_(factor) {}
  /// After every step. Says what is wrong with `loss`: it is more than `factor` times the largest one before it, since
  /// the start or the load. Empty: nothing. Steps that were skipped are not to be added.
  std::string add(int64_t iteration, double loss);

 private:
  double factor_;
  double largest_ = 0;
};

}  // namespace triax::train

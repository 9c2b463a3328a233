// Follows the unit ops of a program while the model runs its units: gathers, collects, reduces and releases where the
// program says, and holds every unit that runs against it.
#pragma once

#include <vector>

#include "parallel/program.h"
#include "train/gradient_sync.h"
#include "train/parameter_gather.h"

namespace triax::train {

class UnitRunner final : public parallel::UnitObserver {
 public:
  /// The model is made with a pointer to the runner, before there is storage to gather into.
  void attach(GradientSync& sync, ParameterGather& gather) {
    sync_ = &sync;
    gather_ = &gather;
  }
  /// The lists of the program that runs next: unit_ops() of this position. They must outlive the run.
  void use(const std::vector<std::vector<parallel::UnitOp>>& lists) { lists_ = &lists; }
  /// Op `index` of the position starts.
  void begin(size_t index);
  /// Does what comes before the unit, and waits for its weights. Throws std::logic_error when the program has another
  /// unit next.
  void before(int unit, parallel::UnitPass pass) override;
  /// The rest of the op's list.
  void end();

 private:
  void execute(const parallel::UnitOp& op);
  GradientSync* sync_ = nullptr;
  ParameterGather* gather_ = nullptr;
  const std::vector<std::vector<parallel::UnitOp>>* lists_ = nullptr;
  const std::vector<parallel::UnitOp>* list_ = nullptr;  ///< of the op that runs
  size_t next_ = 0;
};

}  // namespace triax::train

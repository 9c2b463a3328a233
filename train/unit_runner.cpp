#include "train/unit_runner.h"

#include <fmt/format.h>

#include "base/error.h"

namespace triax::train {

using parallel::UnitOp;
using parallel::UnitOpKind;

void UnitRunner::begin(size_t index) {
  list_ = &(*lists_)[index];
  next_ = 0;
}

void UnitRunner::before(int unit, parallel::UnitPass pass) {
  if (list_ != nullptr && !list_->empty()) {
    while (next_ < list_->size() && (*list_)[next_].kind != UnitOpKind::Run) execute((*list_)[next_++]);
    const bool as_planned =
        next_ < list_->size() && (*list_)[next_].use.unit == unit && (*list_)[next_].use.pass == pass;
    if (!as_planned) {
      const std::string planned = next_ < list_->size() ? parallel::text_of((*list_)[next_]) : "nothing more";
      ensure(false,
             fmt::format("the model runs {} of unit {}, the program has {}", parallel::name_of(pass), unit, planned));
    }
    ++next_;
  }
  gather_->await(unit);
}

void UnitRunner::end() {
  for (; next_ < list_->size(); ++next_) {
    const UnitOp& op = (*list_)[next_];
    if (op.kind == UnitOpKind::Run) ensure(false, "the model did not run " + parallel::text_of(op));
    execute(op);
  }
  list_ = nullptr;
}

void UnitRunner::execute(const UnitOp& op) {
  switch (op.kind) {
    case UnitOpKind::Gather:
      return gather_->gather(op.block);
    case UnitOpKind::Release:
      return gather_->release(op.block);
    case UnitOpKind::Collect:
      return sync_->collect(op.block);
    case UnitOpKind::Reduce:
      return sync_->collects() ? sync_->start_reduction(op.block) : sync_->reduce(op.block);
    case UnitOpKind::Finish:
      return sync_->finish_reduction(op.block);
    case UnitOpKind::Run:
      return;
  }
}

}  // namespace triax::train

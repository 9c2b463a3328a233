// The evaluations of a run: at their interval, at its end, alone.
#include <fmt/format.h>

#include <numbers>

#include "train/training_held.h"
#include "train/training_run.h"

namespace triax::train {

void TrainingRun::evaluate_if_due() {
  const int64_t iteration = held_->trainer.progress().iteration;
  const io::RunControl& control = options().control;
  if (!validation_ || control.eval_iters == 0 || iteration % control.eval_interval != 0) return;
  evaluate("validation", *validation_);
  if (evaluated_at_ == iteration) {
    state_.evaluated_at = iteration;
    state_.consumed_valid_samples = validation_->consumed_samples();
  }
}

void TrainingRun::evaluate_at_end() {
  if (options().control.eval_iters == 0) return;
  if (validation_ && evaluated_at_ != held_->trainer.progress().iteration) evaluate("validation", *validation_);
  if (splits_.test && !evaluation_cut_) evaluate("test", *source_of(datasets_.test.get(), 0));
}

ExitCode TrainingRun::evaluate_only() {
  const bool test = request_.split == EvaluationSplit::Test;
  if (test ? !splits_.test : !splits_.valid) {
    throw ConfigError(fmt::format("--skip-train: the {} split has no samples: give --split or --{}-data-path",
                                  test ? "test" : "validation", test ? "test" : "valid"));
  }
  const std::unique_ptr<BatchSource> source = source_of((test ? datasets_.test : datasets_.valid).get(), 0);
  evaluate(test ? "test" : "validation", *source);
  held_->grid.world().barrier();
  const ExitCode code = evaluation_cut_ ? ExitCode::Interrupted : ExitCode::Done;
  complete(io::EndReason::Finished, code);
  return code;
}

void TrainingRun::evaluate(const char* split, BatchSource& source) {
  const PhaseRecord phase(request_.flight, FlightPhase::Evaluate);
  Trainer& trainer = held_->trainer;
  double bytes = 0;
  for (int64_t i = 0; i < options().control.eval_iters; ++i) {
    const auto batches = source.next_step();
    trainer.evaluate_step(batches);
    // A signal must not wait for the end of a long evaluation; all ranks leave it together.
    double stop = wishes().stop;
    held_->grid.world().all_reduce(Tensor(&stop, DType::Float64, {1}), comm::ReduceOp::Max).wait();
    if (stop != 0) {
      wished_.stop = stop;
      evaluation_cut_ = true;
      trainer.finish_evaluation();
      return;
    }
    if (token_bytes_.empty()) continue;
    for (const io::MicroBatch& batch : batches) {
      for (size_t row = 0; row < batch.targets.size(); ++row) {
        if (!batch.loss_mask.empty() && batch.loss_mask[row] == 0) continue;  // not in the loss either
        const auto token = static_cast<size_t>(batch.targets[row]);
        if (token < token_bytes_.size()) bytes += token_bytes_[token];
      }
    }
  }
  const Trainer::Evaluation evaluation = trainer.finish_evaluation();
  held_->grid.world().all_reduce(Tensor(&bytes, DType::Float64, {1}), comm::ReduceOp::Sum).wait();
  io::EvaluationRecord record;
  record.iteration = trainer.progress().iteration;
  record.split = split;
  record.lm_loss = evaluation.loss;
  record.tokens = static_cast<int64_t>(evaluation.tokens);
  if (bytes > 0) record.bits_per_byte = evaluation.loss * evaluation.tokens / (std::numbers::ln2 * bytes);
  if (reporter_) reporter_->evaluation(record);
  evaluated_at_ = record.iteration;
  step_watch_.restart();
}

}  // namespace triax::train

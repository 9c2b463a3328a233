#include "train/run_reporter.h"

#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "io/options/validate.h"

namespace triax::train {
namespace {

std::string metrics_path(const io::RunDirectory& directory, const io::RunOptions& options) {
  return options.control.metrics_file.empty() ? directory.file("metrics.jsonl") : options.control.metrics_file;
}

void print(const std::string& text) { std::cout << text << std::flush; }

}  // namespace

RecordMaker::RecordMaker(const io::RunOptions& options, double peak_tflops)
    : options_(options),
      peak_tflops_(peak_tflops),
      flops_(model::step_flops(options.model, options.batch.global_batch_size,
                               options.model.padded_vocab_size(options.parallel.grid.tensor),
                               model::AttentionCount::CausalHalf, options.parallel.recompute.granularity,
                               model::recomputed_layers(options.parallel.recompute, io::layer_map_of(options)))) {}

io::IterationRecord RecordMaker::make(const StepResult& result, const Progress& progress, double step_s) const {
  const StepTotals& totals = result.totals;
  const double per_rank = 1e-12 / (step_s * options_.parallel.grid.world());
  const double tokens = static_cast<double>(options_.batch.global_batch_size * options_.model.seq_length);
  io::IterationRecord r;
  r.iteration = progress.iteration;
  r.consumed_samples = progress.consumed_samples;
  r.consumed_tokens = progress.consumed_samples * options_.model.seq_length;
  r.global_batch_size = options_.batch.global_batch_size;
  r.lm_loss = totals.loss;
  r.grad_norm = result.grad_norm;
  r.learning_rate = result.learning_rate;
  r.loss_scale = result.loss_scale;
  r.skipped = result.skipped;
  r.nan = !std::isfinite(totals.loss);
  r.step_ms = step_s * 1e3;
  r.tokens_per_s = tokens / step_s;
  r.comm_bytes = totals.sent_bytes;
  r.model_tflops = flops_.model * per_rank;
  r.hardware_tflops = flops_.hardware * per_rank;
  r.mfu = peak_tflops_ > 0 ? r.model_tflops / peak_tflops_ : 0;
  r.bubble_fraction = totals.bubble_fraction;
  r.data_wait_ms = totals.data_wait_s * 1e3;
  r.exposed_comm_ms = totals.exposed_s * 1e3;
  r.memory_bytes = static_cast<int64_t>(totals.live_bytes);
  r.peak_memory_bytes = static_cast<int64_t>(totals.peak_bytes);
  return r;
}

RunReporter::RunReporter(const io::RunDirectory& directory, const io::ParsedOptions& parsed, const io::RunFacts& facts,
                         int64_t loaded_iteration)
    : directory_(directory),
      metrics_(metrics_path(directory, parsed.options), loaded_iteration),
      log_(loaded_iteration + 1, parsed.options.batch.train_iters, parsed.options.control.log_interval,
           parsed.options.control.log_throughput ? io::Throughput::Show : io::Throughput::Hide),
      progress_(parsed.options.batch.train_iters) {
  io::write_run_files(directory, parsed, facts);
  const io::RunControl& control = parsed.options.control;
  if (control.tensorboard || !control.tensorboard_dir.empty()) {
    events_.emplace(control.tensorboard_dir.empty() ? directory.file("tensorboard") : control.tensorboard_dir);
  }
}

void RunReporter::iteration(const io::IterationRecord& record) {
  metrics_.write(record);
  if (events_) events_->write(record);
  summary_.add(record);
  ++steps_;
  step_s_ += record.step_ms * 1e-3;
  if (const std::optional<std::string> text = log_.add(record)) {
    progress_.clear();
    print(*text + "\n");
    if (events_) events_->flush();
  } else {
    progress_.show(record);
  }
}

void RunReporter::evaluation(const io::EvaluationRecord& record) {
  metrics_.write(record);
  if (events_) {
    events_->write(record);
    events_->flush();
  }
  progress_.clear();
  print(io::validation_lines(record) + "\n");
}

void RunReporter::line(const std::string& text) {
  progress_.clear();
  print(text + "\n");
}

void RunReporter::finish(io::EndReason reason, const std::vector<CommunicationRow>& communication) {
  progress_.clear();
  print(summary_.text(reason));
  const bool failed = reason == io::EndReason::Failed;
  print(communication_text(communication, steps_, step_s_,
                           failed ? CommunicationScope::FailedRank : CommunicationScope::AllRanks));
  nlohmann::ordered_json summary = nlohmann::ordered_json::parse(summary_.json(reason));
  summary["communication"] = nlohmann::ordered_json::parse(communication_json(communication, steps_));
  io::write_summary(directory_, summary.dump(2) + "\n", steps_);
}

}  // namespace triax::train

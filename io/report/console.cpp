#include "io/report/console.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace triax::io {
namespace {

double perplexity(double loss) { return std::exp(std::min(20.0, loss)); }

}  // namespace

const char* text_of(EndReason reason) {
  switch (reason) {
    case EndReason::Finished:
      return "finished";
    case EndReason::ExitInterval:
      return "exit interval";
    case EndReason::ExitDuration:
      return "exit duration";
    case EndReason::Signal:
      return "signal";
    case EndReason::Failed:
      return "failed";
  }
  return "";
}

std::string timestamp() {
  const auto now = std::chrono::system_clock::now();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1000000;
  return fmt::format("[{:%Y-%m-%d %H:%M:%S}.{:06d}]", fmt::localtime(std::chrono::system_clock::to_time_t(now)),
                     micros);
}

IterationLog::IterationLog(int64_t first_iteration, int64_t total_iterations, int64_t interval, Throughput throughput)
    : first_iteration_(first_iteration),
      total_iterations_(total_iterations),
      interval_(interval),
      throughput_(throughput) {}

std::optional<std::string> IterationLog::add(const IterationRecord& record) {
  ++count_;
  skipped_ += record.skipped ? 1 : 0;
  nan_ += record.nan ? 1 : 0;
  if (!record.skipped && !record.nan) {
    ++advanced_;
    loss_sum_ += record.lm_loss;
  }
  step_ms_sum_ += record.step_ms;
  tokens_sum_ += record.tokens_per_s * record.step_ms;
  tflops_ms_sum_ += record.model_tflops * record.step_ms;
  mfu_ms_sum_ += record.mfu * record.step_ms;
  const bool on_interval = record.iteration % interval_ == 0 || record.iteration == total_iterations_;
  if (!on_interval && record.iteration != first_iteration_) return std::nullopt;
  std::string text = line(record);
  if (on_interval) {
    count_ = advanced_ = skipped_ = nan_ = 0;
    loss_sum_ = step_ms_sum_ = tokens_sum_ = tflops_ms_sum_ = mfu_ms_sum_ = 0;
  }
  return text;
}

std::string IterationLog::line(const IterationRecord& last) const {
  const double ms = std::max(step_ms_sum_, 1e-9);
  std::string text = fmt::format(" {} iteration {:8d}/{:8d} | consumed samples: {:12d} |", timestamp(), last.iteration,
                                 total_iterations_, last.consumed_samples);
  text += fmt::format(" elapsed time per iteration (ms): {:.1f} |", step_ms_sum_ / static_cast<double>(count_));
  if (throughput_ == Throughput::Show) {
    text += fmt::format(" throughput per GPU (TFLOP/s/GPU): {:.1f} |", tflops_ms_sum_ / ms);
  }
  text +=
      fmt::format(" learning rate: {:.6E} | global batch size: {:5d} |", last.learning_rate, last.global_batch_size);
  if (advanced_ > 0) text += fmt::format(" lm loss: {:.6E} |", loss_sum_ / static_cast<double>(advanced_));
  text += fmt::format(" loss scale: {:.1f} | grad norm: {:.3f} |", last.loss_scale, last.grad_norm);
  if (last.num_zeros) text += fmt::format(" num zeros: {} |", *last.num_zeros);
  if (last.params_norm) text += fmt::format(" params norm: {:.3f} |", *last.params_norm);
  text += fmt::format(" number of skipped iterations: {:3d} | number of nan iterations: {:3d} |", skipped_, nan_);
  if (throughput_ == Throughput::Show) {
    text += fmt::format(" tokens/s: {:.1f} |", tokens_sum_ / ms);
    if (last.mfu > 0) text += fmt::format(" MFU: {:.1f}% |", 100 * mfu_ms_sum_ / ms);
  }
  return text;
}

std::string validation_lines(const EvaluationRecord& record) {
  std::string text = fmt::format(" {} loss at iteration {} | lm loss value: {:.6E} | lm loss PPL: {:.6E} | ",
                                 record.split, record.iteration, record.lm_loss, perplexity(record.lm_loss));
  if (record.bits_per_byte) text += fmt::format("bits per byte: {:.6f} | ", *record.bits_per_byte);
  const std::string dashes(text.size() + 1, '-');
  return dashes + "\n" + text + "\n" + dashes;
}

Progress::Progress(int64_t total_iterations)
    : total_iterations_(total_iterations), terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::show(const IterationRecord& record) {
  if (!terminal_) return;
  const double left_s = static_cast<double>(total_iterations_ - record.iteration) * record.step_ms / 1000;
  fmt::print(stderr, "\r\033[K iteration {}/{} | loss {:.4f} | {:.0f} ms | {:.0f} tokens/s | {:.0f} s left",
             record.iteration, total_iterations_, record.lm_loss, record.step_ms, record.tokens_per_s, left_s);
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace triax::io

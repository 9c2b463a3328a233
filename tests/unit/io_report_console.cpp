// Megatron-LM's log lines, character by character, and the averages between them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "io/report/console.h"
#include "io/report/summary.h"

using namespace triax::io;

namespace {

IterationRecord record(int64_t iteration, double loss, double ms) {
  IterationRecord r;
  r.iteration = iteration;
  r.consumed_samples = 32 * iteration;
  r.global_batch_size = 32;
  r.lm_loss = loss;
  r.grad_norm = 1.2341;
  r.learning_rate = 1.5e-4;
  r.step_ms = ms;
  r.tokens_per_s = 1000000 / ms;
  r.model_tflops = 2;
  r.mfu = 0.25;
  return r;
}

std::string without_time(const std::string& line) {
  const std::regex stamp(R"(^ \[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}\])");
  EXPECT_TRUE(std::regex_search(line, stamp)) << line;
  return std::regex_replace(line, stamp, " [T]");
}

TEST(IterationLog, prints_megatrons_line) {
  IterationLog log(1, 50, 10, Throughput::Hide);
  IterationRecord r = record(10, 10.90824, 219.1);
  r.num_zeros = 1616;
  r.params_norm = 283.1234;
  EXPECT_EQ(
      without_time(log.add(r).value()),
      " [T] iteration       10/      50 | consumed samples:          320 | elapsed time per iteration (ms): 219.1 | "
      "learning rate: 1.500000E-04 | global batch size:    32 | lm loss: 1.090824E+01 | loss scale: 1.0 | grad norm: "
      "1.234 | num zeros: 1616 | params norm: 283.123 | number of skipped iterations:   0 | number of nan "
      "iterations:   0 |");
}

TEST(IterationLog, averages_since_the_last_line_and_first_line_resets_nothing) {
  IterationLog log(1, 5, 2, Throughput::Show);
  EXPECT_NE(log.add(record(1, 4, 100)).value().find("lm loss: 4.000000E+00"), std::string::npos);
  EXPECT_EQ(
      without_time(log.add(record(2, 2, 300)).value()),
      " [T] iteration        2/       5 | consumed samples:           64 | elapsed time per iteration (ms): 200.0 | "
      "throughput per GPU (TFLOP/s/GPU): 2.0 | learning rate: 1.500000E-04 | global batch size:    32 | lm loss: "
      "3.000000E+00 | loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 | number of nan "
      "iterations:   0 | tokens/s: 5000.0 | MFU: 25.0% |");
  IterationRecord skipped = record(3, 1e30, 10);
  skipped.skipped = true;
  EXPECT_EQ(log.add(skipped), std::nullopt);
  const std::string line = log.add(record(4, 7, 30)).value();
  EXPECT_NE(line.find("lm loss: 7.000000E+00"), std::string::npos) << line;
  EXPECT_NE(line.find("number of skipped iterations:   1"), std::string::npos) << line;
  const std::string last = log.add(record(5, 1, 30)).value();  // the last iteration always has its line
  EXPECT_NE(last.find("lm loss: 1.000000E+00"), std::string::npos) << last;
  EXPECT_NE(last.find("number of skipped iterations:   0"), std::string::npos) << last;
}

TEST(IterationLog, a_resumed_run_prints_its_first_iteration) {
  IterationLog log(18, 100, 10, Throughput::Hide);
  EXPECT_TRUE(log.add(record(18, 1, 1)).has_value());
  EXPECT_FALSE(log.add(record(19, 1, 1)).has_value());
}

TEST(IterationLog, no_loss_when_every_iteration_was_skipped) {
  IterationLog log(1, 9, 1, Throughput::Hide);
  IterationRecord r = record(1, 5, 1);
  r.skipped = true;
  EXPECT_EQ(log.add(r).value().find("lm loss"), std::string::npos);
}

TEST(ValidationLines, are_megatrons) {
  EvaluationRecord r;
  r.iteration = 1000;
  r.lm_loss = 3.1;
  const std::string text =
      " validation loss at iteration 1000 | lm loss value: 3.100000E+00 | lm loss PPL: 2.219795E+01 | ";
  const std::string dashes(text.size() + 1, '-');
  EXPECT_EQ(validation_lines(r), dashes + "\n" + text + "\n" + dashes);
  r.lm_loss = 50;
  r.bits_per_byte = 2.5;
  EXPECT_NE(validation_lines(r).find("lm loss PPL: 4.851652E+08 | bits per byte: 2.500000 | "), std::string::npos);
}

TEST(RunSummary, takes_medians_after_warm_up) {
  RunSummary summary(2);
  for (int i = 1; i <= 5; ++i) {
    IterationRecord r = record(i, 6 - i, i <= 2 ? 1000 : 10 * i);
    r.peak_memory_bytes = i == 1 ? 3 << 20 : 1 << 20;
    r.bubble_fraction = 0.01 * i;
    summary.add(r);
  }
  const auto json = nlohmann::json::parse(summary.json(EndReason::Finished));
  EXPECT_EQ(json["ended"], "finished");
  EXPECT_EQ(json["step_ms"], 40);
  EXPECT_EQ(json["counted_iterations"], 3);
  EXPECT_EQ(json["bubble_fraction"], 0.04);
  EXPECT_EQ(json["peak_memory_bytes"], 3 << 20);
  EXPECT_EQ(json["last_lm_loss"], 1);
  const std::string text = summary.text(EndReason::Signal);
  EXPECT_NE(text.find("run ended: signal at iteration 5 | iterations made: 5"), std::string::npos) << text;
  EXPECT_NE(text.find("median step: 40.0 ms (last 3 iterations)"), std::string::npos) << text;
  EXPECT_NE(text.find("bubble: 4.0%"), std::string::npos) << text;
  EXPECT_NE(text.find("peak memory per rank: 3.0 MiB"), std::string::npos) << text;
  EXPECT_EQ(RunSummary().text(EndReason::Failed), " run ended: failed, no iteration made\n");
}

}  // namespace

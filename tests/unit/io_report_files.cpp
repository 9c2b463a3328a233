// Files of a run, read back: metrics.jsonl, TensorBoard events (framing and CRC), run directory, run.json.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "io/options/validate.h"
#include "io/options/values.h"
#include "io/report/metrics_file.h"
#include "io/report/run_directory.h"
#include "io/report/tensorboard.h"

using namespace triax;
using namespace triax::io;
namespace fs = std::filesystem;

namespace {

std::string fresh(const std::string& name) {
  const std::string path = testing::TempDir() + name;
  fs::remove_all(path);
  return path;
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Metrics, floats_read_back_to_the_same_bits) {
  IterationRecord r;
  r.iteration = 7;
  r.lm_loss = 0.1 + 0.2;
  r.grad_norm = std::nextafter(1.0, 2.0);
  r.learning_rate = 1.2345678901234567e-300;
  r.comm_bytes = 9007199254740993.0;
  r.loss_scale = 4294967296.0;
  r.tokens_per_s = std::nan("");
  const auto json = nlohmann::json::parse(metrics_json(r));
  EXPECT_EQ(json["lm_loss"].get<double>(), r.lm_loss);
  EXPECT_EQ(json["grad_norm"].get<double>(), r.grad_norm);
  EXPECT_EQ(json["learning_rate"].get<double>(), r.learning_rate);
  EXPECT_EQ(json["comm_bytes"].get<double>(), r.comm_bytes);
  EXPECT_TRUE(json["tokens_per_s"].is_null());
  for (const char* key :
       {"iteration", "lm_loss", "grad_norm", "learning_rate", "loss_scale", "consumed_samples", "consumed_tokens",
        "step_ms", "tokens_per_s", "comm_bytes", "model_tflops", "bubble_fraction", "data_wait_ms"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(metrics_json(r).find('\n'), std::string::npos);
}

TEST(Metrics, a_resumed_run_moves_later_lines_aside) {
  const std::string path = fresh("metrics/m.jsonl");
  IterationRecord r;
  {
    MetricsFile file(path);
    for (r.iteration = 1; r.iteration <= 5; ++r.iteration) file.write(r);
  }
  std::ofstream(path, std::ios::app) << "{\"iteration\": 6, \"lm_lo";  // torn by a kill
  {
    MetricsFile file(path, 3);
    r.iteration = 4;
    r.lm_loss = 9;
    file.write(r);
  }
  const std::string text = content(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_NE(text.find("{\"iteration\":4,\"lm_loss\":9.0"), std::string::npos) << text;
  const std::string moved = content(path + ".replaced-1");
  EXPECT_EQ(std::count(moved.begin(), moved.end(), '\n'), 3);
  EXPECT_TRUE(moved.starts_with("{\"iteration\":4,\"lm_loss\":0.0")) << moved;
  EXPECT_THROW(MetricsFile("/proc/none/m.jsonl"), RunTimeError);
  MetricsFile full("/dev/full");  // a device is opened as it is, and a failed write is said
  EXPECT_THROW(full.write(r), RunTimeError);
}

TEST(TensorBoard, crc32c_has_the_published_check_values) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720 B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  const uint32_t crc = 0xE3069283u;
  EXPECT_EQ(masked_crc32c("123456789"), ((crc >> 15) | (crc << 17)) + 0xA282EAD8u);
}

TEST(TensorBoard, an_event_is_these_bytes) {
  const std::string event = scalar_event(1.5, 300, "lm loss", 2.0f);
  const std::string expected(
      "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f"  // wall_time = 1.5
      "\x10\xac\x02"                          // step = 300
      "\x2a\x10\x0a\x0e"                      // summary, 16 bytes, value, 14 bytes
      "\x0a\x07lm loss"                       // tag
      "\x15\x00\x00\x00\x40",                 // simple_value = 2
      30);
  EXPECT_EQ(event, expected);
}

// Payloads of a TFRecord file; fails on a wrong length or CRC.
std::vector<std::string> read_records(const std::string& bytes) {
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    uint32_t crc = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&crc, bytes.data() + at + 8, 4);
    EXPECT_EQ(crc, masked_crc32c(bytes.substr(at, 8)));
    if (at + 16 + length > bytes.size()) throw std::runtime_error("torn record");
    records.push_back(bytes.substr(at + 12, length));
    std::memcpy(&crc, bytes.data() + at + 12 + length, 4);
    EXPECT_EQ(crc, masked_crc32c(records.back()));
    at += 16 + length;
  }
  return records;
}

TEST(TensorBoard, files_read_back) {
  const std::string directory = fresh("tb");
  EventFile file(directory);
  IterationRecord r;
  r.iteration = 3;
  r.consumed_samples = 96;
  r.lm_loss = 1.25;
  file.write(r);
  EvaluationRecord evaluation;
  evaluation.iteration = 3;
  file.write(evaluation);
  EXPECT_NE(file.path().find(directory + "/events.out.tfevents."), std::string::npos);
  const std::vector<std::string> records = read_records(content(file.path()));
  ASSERT_EQ(records.size(), 1u + 12u + 2u);
  EXPECT_NE(records[0].find("\x1a\x0d"
                            "brain.Event:2"),
            std::string::npos);
  double wall_time = 0;
  std::memcpy(&wall_time, records[1].data() + 1, 8);
  EXPECT_EQ(records[1], scalar_event(wall_time, 3, "lm loss", 1.25f));
  std::memcpy(&wall_time, records[2].data() + 1, 8);
  EXPECT_EQ(records[2], scalar_event(wall_time, 96, "lm loss vs samples", 1.25f));
  EXPECT_NE(records.back().find("lm loss validation ppl"), std::string::npos);
  EXPECT_THROW(EventFile("/proc/none/tb"), RunTimeError);
}

ParsedOptions run_options(const std::string& more) {
  ParsedOptions parsed =
      parse_options(split_blanks("--model t1 --micro-batch-size 1 --train-iters 4 --lr 1e-3 --mock-data " + more));
  resolve(parsed.options, 4);
  return parsed;
}

RunFacts facts(const std::string& job, const std::vector<std::string>& words = {"triax", "train"}) {
  RunFacts f;
  f.version = "0.1.0";
  f.commit = "abc";
  f.command_line = words;
  f.slurm_job_id = job;
  f.hosts = {"a", "a", "b", "b"};
  f.world_size = 4;
  f.program_hash = "00ff";
  f.libraries = {{"MPI", "MPICH"}};
  return f;
}

TEST(RunDirectory, another_run_is_never_overwritten) {
  const std::string path = fresh("run");
  const ParsedOptions parsed = run_options("--run-dir " + path);
  const RunDirectory first = open_run_directory(parsed.options, facts(""));
  EXPECT_FALSE(first.continued);
  write_run_files(first, parsed, facts(""));
  try {
    open_run_directory(parsed.options, facts(""));
    FAIL() << "must throw";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("holds another run"), std::string::npos);
  }
}

TEST(RunDirectory, a_restart_of_the_same_job_goes_on) {
  const std::string path = fresh("job");
  const ParsedOptions parsed = run_options("--run-dir " + path);
  write_run_files(open_run_directory(parsed.options, facts("77")), parsed, facts("77"));
  const RunDirectory again = open_run_directory(parsed.options, facts("77"));
  EXPECT_TRUE(again.continued);
  write_run_files(again, parsed, facts("77"));
  EXPECT_TRUE(fs::exists(path + "/run-1.json"));
  EXPECT_THROW(open_run_directory(parsed.options, facts("78")), ConfigError);
  EXPECT_THROW(open_run_directory(parsed.options, facts("77", {"triax", "train", "--lr", "2"})), ConfigError);
  // Killed between its summary and its marker: the next start has nothing to do, keeps the summary and sets the marker.
  write_summary(again, R"({"ended": "finished", "iterations": 4})", 4);
  EXPECT_TRUE(open_run_directory(parsed.options, facts("77")).continued);
  write_summary(again, R"({"ended": "finished", "iterations": 0})", 0);
  mark_ended(again, EndReason::Finished, 4);
  std::ifstream summary(again.file("summary.json"));
  EXPECT_EQ(nlohmann::json::parse(summary)["iterations"], 4);
  EXPECT_THROW(open_run_directory(parsed.options, facts("77")), ConfigError);
}

// Killed while it writes its files, a run finds itself again.
TEST(RunDirectory, is_there_at_every_moment_of_a_restart) {
  const std::string path = fresh("killed");
  const ParsedOptions parsed = run_options("--run-dir " + path);
  write_run_files(open_run_directory(parsed.options, facts("77")), parsed, facts("77"));
  const RunDirectory again = open_run_directory(parsed.options, facts("77"));
  fs::create_directory(path + "/run.json.tmp");  // the new one cannot be written
  EXPECT_THROW(write_run_files(again, parsed, facts("77")), RunTimeError);
  fs::remove(path + "/run.json.tmp");
  EXPECT_TRUE(open_run_directory(parsed.options, facts("77")).continued);
}

// Where Slurm may not requeue, the job script submits again: a new job number.
TEST(RunDirectory, another_job_goes_on_with_its_own_checkpoints) {
  const std::string path = fresh("resubmitted");
  const ParsedOptions parsed = run_options("--run-dir " + path + " --save " + path + "/c --load " + path + "/c");
  write_run_files(open_run_directory(parsed.options, facts("77")), parsed, facts("77"));
  EXPECT_TRUE(open_run_directory(parsed.options, facts("78")).continued);
  EXPECT_THROW(open_run_directory(parsed.options, facts("78", {"triax", "train", "--lr", "2"})), ConfigError);
}

TEST(RunDirectory, when_a_run_stops_and_evaluates_may_change) {
  const std::string path = fresh("chain");
  const ParsedOptions parsed = run_options("--run-dir " + path + " --save " + path + "/c --load " + path + "/c");
  const auto words = [](std::vector<std::string> more) {
    std::vector<std::string> all = {"triax", "train", "--lr", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return facts("", all);
  };
  const RunDirectory first = open_run_directory(parsed.options, words({"--exit-interval", "10"}));
  write_run_files(first, parsed, words({"--exit-interval", "10"}));
  EXPECT_TRUE(open_run_directory(parsed.options, words({})).continued);
  EXPECT_TRUE(open_run_directory(parsed.options, words({"--exit-interval=20", "--eval-iters", "0"})).continued);
  EXPECT_THROW(open_run_directory(parsed.options, words({"--eval-iters", "0", "--seed", "2"})), ConfigError);
  EXPECT_THROW(open_run_directory(parsed.options, words({"--eval-iters", "--seed", "2"})), ConfigError);
  // A start removes both markers.
  mark_ended(first, EndReason::ExitInterval, 10);
  EXPECT_TRUE(fs::exists(path + "/paused") && !fs::exists(path + "/completed"));
  mark_ended(first, EndReason::Finished, 10);
  set_records_aside(first);
  EXPECT_FALSE(fs::exists(path + "/paused") || fs::exists(path + "/completed"));
}
TEST(RunDirectory, the_default_name_is_free_or_the_same_job) {
  const fs::path before = fs::current_path();
  const std::string home = fresh("home");
  fs::create_directories(home);
  fs::current_path(home);
  const ParsedOptions parsed = run_options("--tensor-model-parallel-size 2");
  const RunDirectory first = open_run_directory(parsed.options, facts("42"));
  EXPECT_EQ(first.path, "runs/t1-tp2-pp1-dp2-42");
  write_run_files(first, parsed, facts("42"));
  EXPECT_TRUE(open_run_directory(parsed.options, facts("42")).continued);
  const RunDirectory other = open_run_directory(parsed.options, facts("42", {"triax", "train", "again"}));
  EXPECT_EQ(other.path, "runs/t1-tp2-pp1-dp2-42-2");
  EXPECT_FALSE(other.continued);
  EXPECT_TRUE(open_run_directory(parsed.options, facts("")).path.starts_with("runs/t1-tp2-pp1-dp2-20"));
  fs::current_path(before);
}

TEST(RunJson, says_every_option_and_where_it_came_from) {
  setenv("OMP_NUM_THREADS", "3", 1);
  setenv("TRIAX_SECRET_TOKEN", "hide me", 1);
  setenv("SLURM_JWT", "hide me", 1);
  const ParsedOptions parsed = run_options("--use-mcore-models --global-batch-size 8");
  const std::string text = run_json(parsed, facts("5"));
  EXPECT_EQ(text.find("hide me"), std::string::npos);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["schema"], "triax.run/1");
  EXPECT_EQ(json["version"], "0.1.0");
  EXPECT_EQ(json["command_line"], (std::vector<std::string>{"triax", "train"}));
  EXPECT_EQ(json["hosts"].size(), 4u);
  EXPECT_EQ(json["layout"]["data"], 4);
  EXPECT_EQ(json["layout"]["micro_batches"], 2);
  EXPECT_EQ(json["program_hash"], "00ff");
  EXPECT_EQ(json["environment"]["OMP_NUM_THREADS"], "3");
  EXPECT_EQ(json["without_effect"], std::vector<std::string>{"use-mcore-models"});
  const auto& options = json["options"];
  const auto origin = [&](const char* name) { return options[name]["origin"].get<std::string>(); };
  EXPECT_EQ(origin("lr"), "command line");
  EXPECT_EQ(options["lr"]["value"], "0.001");
  EXPECT_EQ(origin("hidden-size"), "preset");
  EXPECT_EQ(options["hidden-size"]["where"], "preset t1");
  EXPECT_EQ(origin("seed"), "default");
  EXPECT_EQ(origin("lr-decay-iters"), "derived");
  for (const OptionEntry& entry : option_table()) {
    EXPECT_EQ(options.contains(entry.name), entry.get != nullptr) << entry.name;
  }
}

}  // namespace

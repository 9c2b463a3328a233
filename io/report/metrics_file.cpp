#include "io/report/metrics_file.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"

namespace triax::io {
namespace {

using Json = nlohmann::ordered_json;

// Lines of one file in two lots: those that stay, and those of steps that will be made again (or are torn).
struct JsonLines {
  std::vector<std::string> kept, replaced;
};

JsonLines sort_lines(const std::string& path, int64_t resume_iteration) {
  JsonLines lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json record = Json::parse(line, nullptr, false);
    const bool whole = record.is_object() && record.contains("iteration") && record["iteration"].is_number_integer();
    const bool stays = whole && record["iteration"].get<int64_t>() <= resume_iteration;
    (stays ? lines.kept : lines.replaced).push_back(line);
  }
  return lines;
}

void write_lines(const std::string& path, const std::vector<std::string>& lines) {
  std::ofstream file(path, std::ios::trunc);
  for (const std::string& line : lines) file << line << '\n';
  file.flush();
  if (!file) throw RunTimeError(fmt::format("{}: cannot be written", path));
}

void move_aside(const std::string& path, int64_t resume_iteration) {
  if (!std::filesystem::is_regular_file(path)) return;  // a device or a pipe has no lines to keep
  const JsonLines lines = sort_lines(path, resume_iteration);
  if (lines.replaced.empty()) return;
  int number = 1;
  while (std::filesystem::exists(fmt::format("{}.replaced-{}", path, number))) ++number;
  write_lines(fmt::format("{}.replaced-{}", path, number), lines.replaced);
  write_lines(path + ".tmp", lines.kept);
  std::filesystem::rename(path + ".tmp", path);
}

}  // namespace

std::string metrics_json(const IterationRecord& r) {
  Json record = {{"iteration", r.iteration},
                 {"lm_loss", r.lm_loss},
                 {"grad_norm", r.grad_norm},
                 {"learning_rate", r.learning_rate},
                 {"loss_scale", r.loss_scale},
                 {"consumed_samples", r.consumed_samples},
                 {"consumed_tokens", r.consumed_tokens},
                 {"global_batch_size", r.global_batch_size},
                 {"skipped", r.skipped},
                 {"step_ms", r.step_ms},
                 {"tokens_per_s", r.tokens_per_s},
                 {"comm_bytes", r.comm_bytes},
                 {"model_tflops", r.model_tflops},
                 {"hardware_tflops", r.hardware_tflops},
                 {"mfu", r.mfu},
                 {"bubble_fraction", r.bubble_fraction},
                 {"data_wait_ms", r.data_wait_ms},
                 {"exposed_comm_ms", r.exposed_comm_ms},
                 {"memory_bytes", r.memory_bytes},
                 {"peak_memory_bytes", r.peak_memory_bytes}};
  if (r.num_zeros) record["num_zeros"] = *r.num_zeros;
  if (r.params_norm) record["params_norm"] = *r.params_norm;
  return record.dump();
}

std::string metrics_json(const EvaluationRecord& r) {
  Json record = {{"iteration", r.iteration},
                 {"split", r.split},
                 {"lm_loss", r.lm_loss},
                 {"lm_loss_ppl", std::exp(std::min(20.0, r.lm_loss))},
                 {"tokens", r.tokens}};
  if (r.bits_per_byte) record["bits_per_byte"] = *r.bits_per_byte;
  return record.dump();
}

MetricsFile::MetricsFile(const std::string& path, int64_t resume_iteration) : path_(path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  move_aside(path, resume_iteration);
  file_.open(path, std::ios::app);
  if (!file_) throw RunTimeError(fmt::format("--metrics-file {}: cannot be opened for writing", path));
}

void MetricsFile::write_line(const std::string& line) {
  file_ << line << '\n';
  file_.flush();
  if (!file_) throw RunTimeError(fmt::format("{}: writing failed (disk full?)", path_));
}

}  // namespace triax::io

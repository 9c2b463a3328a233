// `triax ckpt ls`, `verify` and `diff`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/ckpt.h"
#include "apps/ckpt_options.h"
#include "base/error.h"
#include "io/checkpoint/directory.h"
#include "io/checkpoint/verify.h"
#include "train/resume.h"

namespace triax::apps {
namespace {

using nlohmann::ordered_json;

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

struct StepRow {
  int64_t iteration, bytes;
  bool latest;
  io::CheckpointHeader header;
};

/// Of a damaged tracker it is said that it is; the steps are there all the same.
std::optional<int64_t> latest_of(const std::string& directory) {
  try {
    return io::latest_step(directory);
  } catch (const io::DamagedTracker& error) {
    fmt::print(stderr, "triax: ckpt ls: {}\n", error.what());
    return std::nullopt;
  }
}

std::vector<StepRow> step_rows(const std::string& directory) {
  std::vector<StepRow> rows;
  const std::optional<int64_t> latest = latest_of(directory);
  for (const int64_t step : io::complete_steps(directory)) {
    rows.push_back(
        {step, io::step_bytes(directory, step), step == latest, train::read_header_of(io::step_path(directory, step))});
  }
  return rows;
}

int list_steps(const CkptOptions& o) {
  const std::vector<StepRow> rows = step_rows(o.paths[0]);
  if (rows.empty()) throw ConfigError(fmt::format("ckpt ls: {}: there is no checkpoint", o.paths[0]));
  if (o.format == "json") {
    ordered_json json = ordered_json::array();
    for (const StepRow& r : rows) {
      json.push_back({{"iteration", r.iteration},
                      {"bytes", r.bytes},
                      {"latest", r.latest},
                      {"layout", r.header.layout},
                      {"zero_stage", r.header.zero_stage},
                      {"dtype", name_of(r.header.weights.dtype)},
                      {"consumed_samples", r.header.weights.consumed_samples},
                      {"model", r.header.weights.model.name},
                      {"program", r.header.program}});
    }
    return fmt::print("{}\n", json.dump(2)), 0;
  }
  const char* row =
      o.format == "csv" ? "{},{},{},{},{},{},{},{}\n" : "{:>10} {:>14} {:<7} {:<16} {:>4} {:<5} {:>16} {}\n";
  fmt::print(fmt::runtime(row), "iteration", "bytes", "latest", "layout", "zero", "dtype", "consumed_samples", "model");
  for (const StepRow& r : rows) {
    fmt::print(fmt::runtime(row), r.iteration, r.bytes, r.latest ? "yes" : "no", r.header.layout, r.header.zero_stage,
               name_of(r.header.weights.dtype), r.header.weights.consumed_samples, r.header.weights.model.name);
  }
  return 0;
}

}  // namespace

int ckpt_ls(const std::vector<std::string>& args) {
  const CkptOptions o = parse_ckpt("ls", args, 1);
  if (o.steps) return list_steps(o);
  io::CheckpointReader reader(checkpoint_at("ls", o.paths[0], o.step));
  const auto hash = [&](const io::TensorInfo& t) { return o.hash ? io::content_hash(reader, t) : std::string(); };
  const std::string content = o.hash ? io::content_hash(reader) : std::string();
  const io::CheckpointHeader& header = reader.header();
  if (o.format == "json") {
    ordered_json json{{"schema", "triax-checkpoint-list"},
                      {"version", 1},
                      {"path", reader.path()},
                      {"iteration", header.weights.iteration},
                      {"consumed_samples", header.weights.consumed_samples},
                      {"layout", header.layout},
                      {"program", header.program}};
    if (o.hash) json["content"] = content;
    for (const io::TensorInfo& t : reader.tensors()) {
      ordered_json tensor{{"kind", t.kind},   {"name", t.name},     {"dtype", name_of(t.dtype)},
                          {"shape", t.shape}, {"bytes", t.bytes()}, {"parts", reader.parts(t).size()}};
      if (o.hash) tensor["hash"] = hash(t);
      json["tensors"].push_back(tensor);
    }
    return fmt::print("{}\n", json.dump(2)), 0;
  }
  const bool csv = o.format == "csv";
  if (!csv) {
    fmt::print("{}: iteration {}, {} samples, {}, {}\n", reader.path(), header.weights.iteration,
               header.weights.consumed_samples, header.layout.empty() ? "weights file" : header.layout, header.program);
  }
  const char* row = csv ? "{},{},{},{},{},{},{}\n" : "{:<11} {:<52} {:<5} {:>14} {:>14} {:>5} {}\n";
  fmt::print(fmt::runtime(row), "kind", "name", "dtype", "shape", "bytes", "parts", o.hash ? "hash" : "");
  int64_t bytes = 0;
  for (const io::TensorInfo& t : reader.tensors()) {
    fmt::print(fmt::runtime(row), t.kind, t.name, name_of(t.dtype), shape_text(t.shape), t.bytes(),
               reader.parts(t).size(), hash(t));
    bytes += t.bytes();
  }
  if (!csv) fmt::print("{} tensors, {} bytes\n", reader.tensors().size(), bytes);
  if (!csv && o.hash) fmt::print("content {}\n", content);
  return 0;
}

int ckpt_verify(const std::vector<std::string>& args) {
  const CkptOptions o = parse_ckpt("verify", args, 1);
  std::vector<std::string> paths;
  if (o.all) {
    for (const int64_t step : io::complete_steps(o.paths[0])) paths.push_back(io::step_path(o.paths[0], step));
  }
  if (paths.empty()) paths.push_back(checkpoint_at("verify", o.paths[0], o.step));
  bool damaged = false;
  for (const std::string& path : paths) {
    const std::vector<std::string> faults = io::verify(path);
    for (const std::string& fault : faults) fmt::print("{}\n", fault);
    if (faults.empty()) fmt::print("{}: whole\n", path);
    damaged = damaged || !faults.empty();
  }
  return static_cast<int>(damaged ? ExitCode::ValidationFailed : ExitCode::Done);
}

int ckpt_diff(const std::vector<std::string>& args) {
  const CkptOptions o = parse_ckpt("diff", args, 2);
  io::CheckpointReader a(checkpoint_at("diff", o.paths[0], o.step));
  io::CheckpointReader b(checkpoint_at("diff", o.paths[1], o.step));
  for (const std::string& kind : o.kinds) {
    if (!a.has_kind(kind) && !b.has_kind(kind)) {
      throw ConfigError(
          fmt::format("ckpt diff: --kind {}: neither {} nor {} has such tensors", kind, a.path(), b.path()));
    }
  }
  const auto found = io::differences(a, b, {o.absolute, o.relative}, o.kinds);
  const auto code = static_cast<int>(found.empty() ? ExitCode::Done : ExitCode::ValidationFailed);
  if (o.format == "json") {
    ordered_json json{{"schema", "triax-checkpoint-diff"}, {"version", 1}, {"equal", found.empty()}};
    json["tensors"] = ordered_json::array();
    for (const io::TensorDifference& d : found) {
      json["tensors"].push_back(
          {{"kind", d.kind}, {"name", d.name}, {"fault", d.fault}, {"differing", d.differing}, {"largest", d.largest}});
    }
    return fmt::print("{}\n", json.dump(2)), code;
  }
  const bool csv = o.format == "csv";
  if (found.empty() && !csv) return fmt::print("equal: {} and {}\n", a.path(), b.path()), code;
  const char* row = csv ? "{},{},{},{},{}\n" : "{:<11} {:<52} {:>12} {:>12} {}\n";
  fmt::print(fmt::runtime(row), "kind", "name", "differing", "largest", "fault");
  for (const io::TensorDifference& d : found) {
    fmt::print(fmt::runtime(row), d.kind, d.name, d.differing, fmt::format("{:.3g}", d.largest), d.fault);
  }
  return code;
}

}  // namespace triax::apps

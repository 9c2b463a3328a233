// run.json: all that is needed to know what a run was.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/options/values.h"
#include "io/report/run_directory.h"

extern char** environ;

namespace triax::io {
namespace {

using Json = nlohmann::ordered_json;

const char* origin_name(Origin origin) {
  switch (origin) {
    case Origin::Default:
      return "default";
    case Origin::Preset:
      return "preset";
    case Origin::File:
      return "file";
    case Origin::CommandLine:
      return "command line";
    case Origin::Derived:
      return "derived";
  }
  return "";
}

// Values after resolve(): what it filled is derived.
Json options_json(const ParsedOptions& parsed) {
  Json options = Json::object();
  for (const OptionEntry& entry : option_table()) {
    if (!entry.get) continue;
    const std::string value = join(entry.get(parsed.options));
    const auto found = parsed.settings.find(entry.name);
    const bool kept = found != parsed.settings.end() && found->second.value == value;
    const Origin origin = kept ? found->second.origin : Origin::Derived;
    options[entry.name] = {{"value", value}, {"origin", origin_name(origin)}};
    if (origin == Origin::File || origin == Origin::Preset) options[entry.name]["where"] = found->second.where;
  }
  return options;
}

bool tells_of_a_secret(std::string_view name) {
  constexpr std::array<std::string_view, 7> kWords = {"TOKEN", "KEY", "SECRET", "PASS", "JWT", "CRED", "AUTH"};
  for (const std::string_view word : kWords) {
    if (name.find(word) != std::string_view::npos) return true;
  }
  return false;
}

bool allowed(std::string_view name) {
  constexpr std::array<std::string_view, 13> kPrefixes = {"OMP_",   "GOMP_",     "KMP_",  "MPICH_", "MPIR_",
                                                          "HYDRA_", "UCX_",      "FI_",   "DNNL_",  "ONEDNN_",
                                                          "NCCL_",  "OPENBLAS_", "TRIAX_"};
  constexpr std::array<std::string_view, 14> kNames = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS",
                                                       "MALLOC_ARENA_MAX",     "LD_PRELOAD",
                                                       "SLURM_JOB_ID",         "SLURM_JOB_NAME",
                                                       "SLURM_JOB_NODELIST",   "SLURM_JOB_NUM_NODES",
                                                       "SLURM_NTASKS",         "SLURM_NTASKS_PER_NODE",
                                                       "SLURM_CPUS_PER_TASK",  "SLURM_RESTART_COUNT",
                                                       "SLURM_JOB_PARTITION",  "SLURM_CPU_BIND"};
  if (tells_of_a_secret(name)) return false;
  for (const std::string_view one : kNames) {
    if (name == one) return true;
  }
  for (const std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

std::map<std::string, std::string> allowed_environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (allowed(name)) variables.emplace(name, text.substr(equals + 1));
  }
  return variables;
}

std::string run_json(const ParsedOptions& parsed, const RunFacts& facts) {
  const comm::GridShape& grid = parsed.options.parallel.grid;
  Json json = {{"schema", "triax.run/1"},
               {"version", facts.version},
               {"commit", facts.commit},
               {"compiler", facts.compiler},
               {"started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
               {"command_line", facts.command_line},
               {"slurm_job_id", facts.slurm_job_id},
               {"world_size", facts.world_size},
               {"layout",
                {{"tensor", grid.tensor},
                 {"context", grid.context},
                 {"pipeline", grid.pipeline},
                 {"data", grid.data},
                 {"chunks", parsed.options.parallel.chunks},
                 {"micro_batches", parsed.options.batch.num_micro_batches}}},
               {"model", parsed.options.model.name},
               {"parameters", facts.parameters},
               {"program_hash", facts.program_hash},
               {"data_hash", facts.data_hash},
               {"tokenizer_hash", facts.tokenizer_hash},
               {"device", facts.device},
               {"peak_tflops", facts.peak_tflops},
               {"hosts", facts.hosts},
               {"libraries", facts.libraries},
               {"environment", allowed_environment()},
               {"options", options_json(parsed)},
               {"without_effect", parsed.options.inert},
               {"notes", parsed.notes}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace triax::io

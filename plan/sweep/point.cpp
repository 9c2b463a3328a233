#include "plan/sweep/point.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "base/error.h"
#include "io/options/options.h"
#include "io/options/validate.h"
#include "io/options/values.h"

namespace triax::plan {
namespace {

// Options without which no number of ranks is known; the trainer gets ranks and global batch instead.
struct LayoutWords {
  int64_t data_parallel = 0, world = 0, micro_batches = 0;  ///< 0: not given
};

// FNV-1a, 64 bits: names need no secrecy, only difference.
uint64_t hash_of(const std::vector<std::string>& words) {
  uint64_t hash = 14695981039346656037u;
  for (const std::string& word : words) {
    for (const char c : word + '\0') hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  return hash;
}

std::string slug(const std::vector<Setting>& settings) {
  std::string text;
  for (const auto& [name, value] : settings) {
    for (const char c : (text.empty() ? "" : ",") + name + "=" + value) {
      const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                         std::string_view("=,.-").find(c) != std::string_view::npos;
      text += plain ? c : '_';
    }
  }
  if (text.empty()) text = "base";
  return text.size() > 80 ? text.substr(0, 80) : text;
}

int64_t count_of(const std::string& name, const std::string& text) {
  const std::optional<int64_t> value = io::parse_integer(text);
  if (!value || *value < 1 || *value > 1'000'000) {
    throw ConfigError(fmt::format("--{} {}: must be a whole number from 1 to 1000000", name, text));
  }
  return *value;
}

// Takes the three out of the arguments; the last occurrence wins.
LayoutWords take_layout_words(std::vector<std::string>& arguments) {
  LayoutWords words;
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    int64_t* field = nullptr;
    std::string name = arguments[i];
    for (const auto& [option, place] : {std::pair{"--data-parallel-size", &words.data_parallel},
                                        {"--world-size", &words.world},
                                        {"--num-microbatches", &words.micro_batches}}) {
      if (name == option) field = place;
    }
    if (field == nullptr || i + 1 == arguments.size()) {
      kept.push_back(arguments[i]);
    } else {
      *field = count_of(name.substr(2), arguments[++i]);
    }
  }
  arguments = std::move(kept);
  return words;
}

/// Words of `--hw NAME`, taken out: an option of the subcommands that predict, not of the table.
std::vector<std::string> take_hardware(std::vector<std::string>& arguments) {
  std::vector<std::string> taken;
  for (size_t i = 0; i + 1 < arguments.size();) {
    if (arguments[i] != "--hw") {
      ++i;
      continue;
    }
    taken = {arguments[i], arguments[i + 1]};
    arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(i),
                    arguments.begin() + static_cast<std::ptrdiff_t>(i) + 2);
  }
  return taken;
}

/// Ranks of these options: --world-size, else tp pp cp d.
int64_t ranks_of(const LayoutWords& words, const comm::GridShape& grid) {
  const int64_t model_ranks = int64_t{grid.tensor} * grid.pipeline * grid.context;
  const int64_t replicas = std::max<int64_t>(words.data_parallel, 1);
  const int64_t world = words.world > 0 ? words.world : model_ranks * replicas;
  if (words.world > 0 && words.data_parallel > 0 && words.world != model_ranks * replicas) {
    throw ConfigError(fmt::format("--world-size {}: must be tp cp pp d = {}", words.world, model_ranks * replicas));
  }
  return world;
}

/// Ranks that a simulated point stands for; the simulator refuses what is wrong with them in its own words.
int simulated_ranks(std::vector<std::string> arguments) {
  try {
    take_hardware(arguments);
    const LayoutWords words = take_layout_words(arguments);
    return static_cast<int>(ranks_of(words, io::parse_options(arguments).options.parallel.grid));
  } catch (const ConfigError&) {
    return 1;
  }
}

void resolve_ranks(Point& point) {
  const std::vector<std::string> hardware = take_hardware(point.arguments);
  const LayoutWords words = take_layout_words(point.arguments);
  if (point.request.mode == SweepMode::Virtual) {
    point.arguments.insert(point.arguments.end(), {"--clock", "virtual"});
  }
  io::ParsedOptions parsed = io::parse_options(point.arguments);
  const comm::GridShape& grid = parsed.options.parallel.grid;
  const int64_t model_ranks = int64_t{grid.tensor} * grid.pipeline * grid.context;
  const int64_t world = ranks_of(words, grid);
  if (world > io::data_parallel_size(grid, static_cast<int>(world)) * model_ranks || world > 1'000'000) {
    throw ConfigError(fmt::format("--world-size {}: must be at most 1000000", world));
  }
  point.ranks = static_cast<int>(world);
  if (words.micro_batches > 0) {
    if (parsed.given("global-batch-size")) {
      throw ConfigError("--num-microbatches: give it or --global-batch-size, not both");
    }
    const int64_t d = world / model_ranks;
    const int64_t batch = words.micro_batches * d * std::max<int64_t>(parsed.options.batch.micro_batch_size, 1);
    point.arguments.insert(point.arguments.end(), {"--global-batch-size", std::to_string(batch)});
    parsed = io::parse_options(point.arguments);
  }
  io::resolve(parsed.options, point.ranks);
  point.resolved = parsed.options;
  point.arguments.insert(point.arguments.end(), hardware.begin(), hardware.end());
}

}  // namespace

const char* name_of(SweepMode mode) {
  return mode == SweepMode::Real ? "real" : mode == SweepMode::Virtual ? "virtual" : "simulated";
}

std::string text_of(const std::vector<Setting>& settings) {
  std::string text;
  for (const auto& [name, value] : settings) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text.empty() ? "all defaults" : text;
}

std::vector<std::string> with_settings(std::vector<std::string> base, const std::vector<Setting>& settings) {
  for (const auto& [name, value] : settings) {
    if (value == "-") continue;
    const bool is_switch = value == "true" || value == "false";
    if (is_switch) {
      base.push_back(fmt::format("--{}={}", name, value));
      continue;
    }
    base.push_back("--" + name);
    for (const std::string& word : io::split_blanks(value)) base.push_back(word);
  }
  return base;
}

Point make_point(const PointRequest& request) {
  Point point{request, {}, {}, 1, {}, with_settings(request.arguments, request.settings)};
  std::vector<std::string> identity = point.arguments;
  identity.emplace_back(name_of(request.mode));
  point.name = fmt::format("{}-{:08x}-r{}", slug(request.settings), hash_of(identity) & 0xffffffffu, request.repeat);
  if (request.mode == SweepMode::Simulated) {
    point.ranks = simulated_ranks(point.arguments);
    return point;
  }
  try {
    resolve_ranks(point);
  } catch (const ConfigError& error) {
    point.refusal = error.what();
  }
  return point;
}

std::vector<std::string> command_of(const Point& point, const std::vector<std::string>& launcher,
                                    const std::string& triax, const std::string& directory) {
  std::vector<std::string> command;
  if (point.request.mode == SweepMode::Simulated) {
    const bool machine = std::find(point.arguments.begin(), point.arguments.end(), "--hw") != point.arguments.end();
    command = machine ? std::vector<std::string>{triax, "sim"} : std::vector<std::string>{triax, "program", "time"};
    command.insert(command.end(), point.arguments.begin(), point.arguments.end());
    command.insert(command.end(), {"--format", "json", "--out", directory + "/time.json"});
    return command;
  }
  for (std::string word : launcher) {
    for (size_t at = word.find("{ranks}"); at != std::string::npos; at = word.find("{ranks}")) {
      word.replace(at, 7, std::to_string(point.ranks));
    }
    command.push_back(word);
  }
  command.insert(command.end(), {triax, "train"});
  command.insert(command.end(), point.arguments.begin(), point.arguments.end());
  if (point.resolved) {  // points do not write among each other's files
    const io::RunControl& control = point.resolved->control;
    for (const auto& [option, path] : {std::pair{"--save", &control.save},
                                       {"--metrics-file", &control.metrics_file},
                                       {"--tensorboard-dir", &control.tensorboard_dir}}) {
      if (!path->empty()) command.insert(command.end(), {option, *path + "/" + point.name});
    }
  }
  command.insert(command.end(), {"--run-dir", directory});
  return command;
}

}  // namespace triax::plan

// Defaults, then the preset of --model, then --config files, then the command line; the last occurrence wins.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "base/error.h"
#include "io/options/given.h"
#include "io/options/values.h"
#include "model/presets.h"

namespace triax::io {
namespace {

std::string shown(const Given& given) {
  if (given.origin == Origin::CommandLine) {
    const bool bare = given.entry->kind == ValueKind::Switch;
    return bare ? given.typed : given.typed + " " + join(given.values);
  }
  return fmt::format("{}: {} = {}", given.where, given.typed, join(given.values));
}

bool asks_for_nothing(const Given& given) {
  const OptionEntry& entry = *given.entry;
  if (std::find(entry.allowed.begin(), entry.allowed.end(), join(given.values)) != entry.allowed.end()) return true;
  return entry.status == OptionStatus::Refused && given.values[0] == "false" && entry.kind == ValueKind::Switch;
}

class Parser {
 public:
  explicit Parser(const std::vector<OptionEntry>& extra) : index_(extra) {}

  ParsedOptions run(const std::vector<std::string>& args) {
    std::vector<Given> command_line;
    read_command_line(args, index_, command_line, faults_);
    for (const Given& given : command_line) {
      if (given.entry->name == "help") parsed_.help = given.values[0] == "true";
      if (given.entry->name == "list-models") parsed_.list_models = given.values[0] == "true";
      if (given.entry->name == "list-hw") parsed_.list_hardware = given.values[0] == "true";
    }
    if (parsed_.help || parsed_.list_models || parsed_.list_hardware) return std::move(parsed_);
    std::vector<Given> all;
    for (const Given& given : command_line) {
      if (given.entry->name == "config") read_config_file(given.values[0], Origin::File, index_, all, faults_);
    }
    all.insert(all.end(), command_line.begin(), command_line.end());
    take_model(all);
    for (const Given& given : all) apply(given);
    derive({&last_given_, preset_}, parsed_, faults_);
    record_settings();
    throw_faults();
    return std::move(parsed_);
  }

 private:
  // --model: a preset sets dimensions and bf16; a file is read like one of --config, before all others.
  void take_model(std::vector<Given>& all) {
    const Given* last = nullptr;
    for (const Given& given : all) {
      if (given.entry->name == "model") last = &given;
    }
    if (last == nullptr) return;
    const std::string name = last->values[0];
    const model::Preset* preset = model::find_preset(name);
    if (preset != nullptr) {
      preset_ = &preset->config;
      parsed_.options.model = preset->config;
      parsed_.options.control.precision = Precision::Bf16;
      preset_options_ = parsed_.options;
      preset_where_ = "preset " + name;
      return;
    }
    if (std::filesystem::is_regular_file(name)) {
      parsed_.options.model.name = std::filesystem::path(name).stem().string();
      std::vector<Given> file;
      read_config_file(name, Origin::File, index_, file, faults_);
      all.insert(all.begin(), file.begin(), file.end());
      return;
    }
    std::vector<std::string> names;
    for (const model::Preset& one : model::presets()) names.push_back(one.config.name);
    const std::string nearest = nearest_name(name, names);
    faults_.push_back(fmt::format("{}: neither a named model nor a file; {}", shown(*last),
                                  nearest.empty() ? "--list-models lists the names" : "did you mean " + nearest + "?"));
  }

  void apply(const Given& given) {
    const OptionEntry& entry = *given.entry;
    switch (entry.status) {
      case OptionStatus::Renamed:
        faults_.push_back(fmt::format("{}: this name is gone; use --{}", shown(given), entry.reason));
        return;
      case OptionStatus::Inert:
        if (!entry.allowed.empty() && !asks_for_nothing(given)) {
          faults_.push_back(fmt::format("{}: {}", shown(given), entry.reason));
          return;
        }
        add_inert(given.typed);
        return;
      case OptionStatus::Refused:
        if (!asks_for_nothing(given)) faults_.push_back(fmt::format("{}: {}", shown(given), entry.reason));
        return;
      case OptionStatus::Honoured:
        break;
    }
    const std::string fault = entry.set(parsed_.options, given.values);
    if (!fault.empty()) faults_.push_back(fmt::format("{}: {}", shown(given), fault));
    last_given_[entry.name] = join(given.values);
    // In the getter's spelling ("1e-3" is 0.001), so that a later change of the value can be seen.
    const std::string value = entry.get ? join(entry.get(parsed_.options)) : join(given.values);
    parsed_.settings[entry.name] = {value, given.origin, given.where};
  }

  void add_inert(const std::string& typed) {
    const std::string name = typed.starts_with("--") ? typed.substr(2) : typed;
    std::vector<std::string>& inert = parsed_.options.inert;
    if (std::find(inert.begin(), inert.end(), name) == inert.end()) inert.push_back(name);
  }

  void record_settings() {
    const RunOptions defaults;
    for (const OptionEntry& entry : option_table()) {
      if (!entry.get) continue;
      const std::string value = join(entry.get(parsed_.options));
      const auto found = parsed_.settings.find(entry.name);
      if (found != parsed_.settings.end()) {
        // "--fp16 --bf16": what was given first did not last.
        const bool lasted = found->second.value == value || last_given_.at(entry.name) == value;
        if (!lasted) found->second = {value, Origin::Derived, "other options"};
        found->second.value = value;
      } else if (value == join(entry.get(defaults))) {
        parsed_.settings[entry.name] = {value, Origin::Default, "default"};
      } else if (preset_ != nullptr && value == join(entry.get(preset_options_))) {
        parsed_.settings[entry.name] = {value, Origin::Preset, preset_where_};
      } else {
        parsed_.settings[entry.name] = {value, Origin::Derived, "other options"};
      }
    }
  }

  void throw_faults() const {
    if (faults_.empty()) return;
    if (faults_.size() == 1) throw ConfigError(faults_[0]);
    constexpr size_t kShown = 20;  // a file that is no configuration has a fault on every line
    const size_t shown = std::min(kShown, faults_.size());
    const std::string more = faults_.size() > shown ? fmt::format("\n  ... and {} more", faults_.size() - shown) : "";
    throw ConfigError(fmt::format("{} faults in the options:\n  {}{}", faults_.size(),
                                  fmt::join(faults_.begin(), faults_.begin() + static_cast<ptrdiff_t>(shown), "\n  "),
                                  more));
  }

  NameIndex index_;
  ParsedOptions parsed_;
  std::map<std::string, std::string> last_given_;
  std::vector<std::string> faults_;
  const model::ModelConfig* preset_ = nullptr;
  RunOptions preset_options_;
  std::string preset_where_;
};

}  // namespace

bool ParsedOptions::given(const std::string& name) const {
  const auto found = settings.find(name);
  if (found == settings.end()) return false;
  return found->second.origin == Origin::File || found->second.origin == Origin::CommandLine;
}

ParsedOptions parse_options(const std::vector<std::string>& args, const std::vector<OptionEntry>& extra) {
  return Parser(extra).run(args);
}

}  // namespace triax::io

// The command line as one table: every option with Megatron-LM's name, what it does here, and how it fills RunOptions.
// The table drives the parser, --help, suggestions, resolved.cfg and docs/from-megatron.md.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/run_options.h"

namespace triax::io {

/// Honoured: does what it does in Megatron-LM. Inert: changes neither result nor what is measured, listed in one line.
/// Refused: would change the result and cannot be done here. Renamed: points to the new name.
enum class OptionStatus { Honoured, Inert, Refused, Renamed };
/// Switch takes no value, or =true|false, and has --no-x; List takes one or more values.
enum class ValueKind { Switch, Value, List };
enum class OptionGroup { Model, Parallel, Batch, Optimizer, Precision, Data, Checkpoint, Logging, Run };
/// In the order in which they are listed.
inline constexpr OptionGroup kOptionGroups[] = {OptionGroup::Model,      OptionGroup::Parallel,  OptionGroup::Batch,
                                                OptionGroup::Optimizer,  OptionGroup::Precision, OptionGroup::Data,
                                                OptionGroup::Checkpoint, OptionGroup::Logging,   OptionGroup::Run};
const char* name_of(OptionGroup group);

/// Where a value came from. The later ones override the earlier ones; Derived follows from others.
enum class Origin { Default, Preset, File, CommandLine, Derived };

/// Writes the values into the options; returns a fault ("must be ... "), empty when fine. A switch gets "true"/"false".
using OptionSetter = std::function<std::string(RunOptions&, const std::vector<std::string>&)>;
/// The values as text that the setter reads back to the same value; empty: not given, not written to resolved.cfg.
using OptionGetter = std::function<std::vector<std::string>(const RunOptions&)>;

struct OptionEntry {
  std::string name = {};  ///< without dashes
  ValueKind kind = ValueKind::Value;
  OptionGroup group = OptionGroup::Run;
  std::string value_name = {};  ///< "N", "X", "FILE", "a|b"
  std::string help = {};
  OptionStatus status = OptionStatus::Honoured;
  std::string reason = {};  ///< refused, inert: why; renamed: the new option's name without dashes
  OptionSetter set = {};
  OptionGetter get = {};
  std::string deepspeed = {};  ///< DeepSpeed's name, empty when there is none
  std::string torchtitan = {};
  std::vector<std::string> aliases = {};  ///< other names that mean the same
  std::vector<std::string> allowed = {};  ///< Refused and Inert: values that ask for nothing that we do not do
  bool has_disable = false;               ///< Megatron also has --disable-x
};

/// All options of `triax train`, in the order of the groups.
const std::vector<OptionEntry>& option_table();

/// One option as given.
struct Setting {
  std::string value;  ///< values separated by blanks
  Origin origin = Origin::Default;
  std::string where;  ///< "command line", "FILE.cfg:12", "preset llama2-7b", "default", or what it was derived from
};

struct ParsedOptions {
  RunOptions options;
  std::map<std::string, Setting> settings;  ///< every honoured option of the table, for run.json
  std::vector<std::string> notes;           ///< what a user should be told in the header, one line each
  bool help = false;                        ///< --help was given; nothing else is checked
  bool list_models = false;
  bool list_hardware = false;
  /// True when the option was given by the user (file or command line).
  bool given(const std::string& name) const;
};

/// Parses `args` (without program and subcommand name). Order of precedence: defaults, --model preset, --config files,
/// command line; the last occurrence wins. Throws ConfigError with every fault of the command line in one message.
/// `extra` adds options of one subcommand; their setters may ignore the RunOptions.
ParsedOptions parse_options(const std::vector<std::string>& args, const std::vector<OptionEntry>& extra = {});

/// "--help" text, grouped.
std::string help_text(const std::string& usage, const std::vector<OptionEntry>& extra = {});
/// docs/from-megatron.md.
std::string markdown_table();
/// Text of a cfg file that repeats the run: parsing it and resolve() give the same options.
std::string resolved_cfg(const RunOptions& options);
/// Name and value of every option that has one, in the order of the table's groups: what resolved.cfg lists.
std::vector<std::pair<std::string, std::string>> option_values(const RunOptions& options);
/// name -> value of the lines "name = value" of such a text.
std::map<std::string, std::string> values_in(const std::string& cfg);
/// The known option name nearest to `name` (edit distance), empty when none is near.
std::string nearest_name(const std::string& name, const std::vector<std::string>& known);

/// Layer counts of the virtual stages from Megatron's --pipeline-model-parallel-layout: "E|(t|)*3,t|tL", or a plain
/// list "8,8,7,7". Throws ConfigError.
std::vector<int64_t> parse_layout(const std::string& text);

}  // namespace triax::io

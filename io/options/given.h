// Options as typed, before their meaning: the common form of command line and cfg files.
#pragma once

#include <string>
#include <vector>

#include "io/options/options.h"

namespace triax::io {

/// Finds entries by any of their names. Holds pointers into the table and `extra`, which must outlive it.
class NameIndex {
 public:
  enum class Sense { Same, Negated };
  struct Match {
    const OptionEntry* entry = nullptr;
    Sense sense = Sense::Same;
  };
  explicit NameIndex(const std::vector<OptionEntry>& extra);
  /// entry is nullptr when unknown.
  Match find(const std::string& name) const;
  const std::map<std::string, Match>& names() const { return names_; }
  /// "unknown option --x; did you mean --y?" The suggestion is never a refused or old name.
  std::string unknown(const std::string& name) const;

 private:
  void add(const OptionEntry& entry);
  std::map<std::string, Match> names_;
};

struct Given {
  const OptionEntry* entry = nullptr;
  std::string typed;                ///< name as typed, with dashes on the command line
  std::vector<std::string> values;  ///< a switch has one, "true" or "false", after --no-x is undone
  Origin origin = Origin::CommandLine;
  std::string where;
};

/// Appends what it finds, in order; appends faults of form.
void read_command_line(const std::vector<std::string>& args, const NameIndex& index, std::vector<Given>& given,
                       std::vector<std::string>& faults);
/// Lines "key = value", "#" starts a comment. A file that cannot be read is a fault.
void read_config_file(const std::string& path, Origin origin, const NameIndex& index, std::vector<Given>& given,
                      std::vector<std::string>& faults);

/// What derive() needs to know besides the options.
struct DeriveInput {
  const std::map<std::string, std::string>* last_given;  ///< last value of each option given by the user
  const model::ModelConfig* preset;                      ///< nullptr without a model preset
};
/// Megatron-LM's rules for what was not given (flags.md 4.1), and contradictions among what was.
void derive(const DeriveInput& input, ParsedOptions& parsed, std::vector<std::string>& faults);

}  // namespace triax::io

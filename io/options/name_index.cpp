#include <fmt/format.h>

#include "io/options/given.h"

namespace triax::io {

NameIndex::NameIndex(const std::vector<OptionEntry>& extra) {
  // The subcommand's own options come first: they may give a name of the table another meaning.
  for (const OptionEntry& entry : extra) add(entry);
  for (const OptionEntry& entry : option_table()) add(entry);
}

void NameIndex::add(const OptionEntry& entry) {
  std::vector<std::string> all = {entry.name};
  all.insert(all.end(), entry.aliases.begin(), entry.aliases.end());
  for (const std::string& name : all) {
    names_.emplace(name, Match{&entry, Sense::Same});
    if (entry.kind != ValueKind::Switch) continue;
    names_.emplace("no-" + name, Match{&entry, Sense::Negated});
    if (entry.has_disable) names_.emplace("disable-" + name, Match{&entry, Sense::Negated});
  }
}

NameIndex::Match NameIndex::find(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? Match{} : found->second;
}

std::string NameIndex::unknown(const std::string& name) const {
  std::vector<std::string> known;
  for (const auto& [text, match] : names_) {
    const OptionStatus status = match.entry->status;
    if (status == OptionStatus::Honoured || status == OptionStatus::Inert) known.push_back(text);
  }
  const std::string nearest = nearest_name(name, known);
  if (nearest.empty()) return fmt::format("--{}: unknown option; --help lists all", name);
  return fmt::format("--{}: unknown option; did you mean --{}?", name, nearest);
}

}  // namespace triax::io

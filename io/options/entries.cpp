#include "io/options/entries.h"

namespace triax::io {

std::string Range::text() const {
  if (high == kInfinity) return fmt::format("{} {}", open_low ? "greater than" : "at least", low);
  return fmt::format("in {}{}, {}{}", open_low ? "(" : "[", low, high, open_high ? ")" : "]");
}

OptionEntry derived_option(std::string name, ValueKind kind, OptionGroup group, std::string value_name,
                           std::string help) {
  OptionEntry entry{.name = std::move(name),
                    .kind = kind,
                    .group = group,
                    .value_name = std::move(value_name),
                    .help = std::move(help)};
  entry.set = [](RunOptions&, const std::vector<std::string>&) { return std::string(); };
  return entry;
}

const char* name_of(OptionGroup group) {
  switch (group) {
    case OptionGroup::Model:
      return "Model";
    case OptionGroup::Parallel:
      return "Parallelism";
    case OptionGroup::Batch:
      return "Batch and length";
    case OptionGroup::Optimizer:
      return "Optimizer and learning rate";
    case OptionGroup::Precision:
      return "Precision";
    case OptionGroup::Data:
      return "Data and tokenizer";
    case OptionGroup::Checkpoint:
      return "Saved weights";
    case OptionGroup::Logging:
      return "Logging and evaluation";
    case OptionGroup::Run:
      return "Run";
  }
  return "";
}

const std::vector<OptionEntry>& option_table() {
  static const std::vector<OptionEntry> table = [] {
    std::vector<OptionEntry> all;
    for (auto& part : {model_entries(), parallel_entries(), compression_entries(), batch_entries(), optimizer_entries(),
                       precision_entries(), data_entries(), control_entries(), inert_entries(), refused_entries(),
                       renamed_entries()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return table;
}

}  // namespace triax::io

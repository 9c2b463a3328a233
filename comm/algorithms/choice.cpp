#include "comm/algorithms/choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/error.h"

namespace triax::comm {
namespace {

const std::vector<std::string>& group_names() {
  static const std::vector<std::string> names{
      "all", "world", "tp", "cp", "dp", "pp", "model_parallel", "embedding", "kv_replicas", "dp_shard", "dp_replica"};
  return names;
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const Algorithm algorithm : all_algorithms()) names.emplace_back(name_of(algorithm));
  return names;
}

std::optional<Algorithm> algorithm_named(const std::string& name) {
  for (const Algorithm algorithm : all_algorithms()) {
    if (name == name_of(algorithm)) return algorithm;
  }
  return std::nullopt;
}

[[noreturn]] void refuse_algorithm(const std::string& why) {
  throw ConfigError(
      fmt::format("{}; use GROUP=ALGORITHM[,...] or one ALGORITHM for all groups, for example dp=ring,tp=library; "
                  "groups: {}; algorithms: {}",
                  why, fmt::join(group_names(), ", "), fmt::join(algorithm_names(), ", ")));
}

std::pair<std::string, Algorithm> parse_choice(const std::string& rule) {
  const size_t equals = rule.find('=');
  const std::string group = equals == std::string::npos ? "all" : rule.substr(0, equals);
  const std::string name = equals == std::string::npos ? rule : rule.substr(equals + 1);
  const std::optional<Algorithm> algorithm = algorithm_named(name);
  if (!algorithm) refuse_algorithm(fmt::format("there is no algorithm '{}'", name));
  const std::vector<std::string>& groups = group_names();
  if (std::find(groups.begin(), groups.end(), group) == groups.end()) {
    refuse_algorithm(fmt::format("there is no group '{}'", group));
  }
  return {group, *algorithm};
}

}  // namespace

const char* name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::Default:
      return "default";
    case Algorithm::SharedMemory:
      return "shared-memory";
    case Algorithm::Direct:
      return "direct";
    case Algorithm::Library:
      return "library";
    case Algorithm::Ring:
      return "ring";
    case Algorithm::HalvingDoubling:
      return "halving-doubling";
    case Algorithm::Tree:
      return "tree";
    case Algorithm::DoubleTree:
      return "double-tree";
    case Algorithm::Hierarchical:
      return "hierarchical";
  }
  return "?";
}

const std::vector<Algorithm>& all_algorithms() {
  using enum Algorithm;
  static const std::vector<Algorithm> all{Default,         SharedMemory, Direct,     Library,     Ring,
                                          HalvingDoubling, Tree,         DoubleTree, Hierarchical};
  return all;
}

Algorithm CollectiveOptions::of(const std::string& group) const {
  Algorithm found = Algorithm::Default;
  for (const auto& [name, algorithm] : rules) {
    if (name == "all" || name == group) found = algorithm;
  }
  return found;
}

CollectiveOptions parse_collective_algorithms(const std::string& spec, SumOrder order) {
  CollectiveOptions options;
  options.order = order;
  if (!spec.empty() && spec.back() == ',') refuse_algorithm("the last rule is empty");
  std::istringstream stream(spec);
  std::string rule;
  while (std::getline(stream, rule, ',')) {
    options.rules.push_back(parse_choice(rule));
    if (order == SumOrder::Ranks && options.rules.back().second == Algorithm::Library) {
      throw ConfigError(
          fmt::format("--fixed-reduction-order true: the library of --collective-algorithm {} sums in an order of its "
                      "own; use ring, halving-doubling, tree, double-tree, hierarchical, direct or default there",
                      rule));
    }
  }
  return options;
}

}  // namespace triax::comm

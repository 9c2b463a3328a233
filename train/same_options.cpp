#include "train/same_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "io/checkpoint/checksum.h"
#include "io/options/options.h"
#include "io/options/values.h"

namespace triax::train {
namespace {

/// Of a node or a process, and without effect on what all ranks do together.
const std::set<std::string>& own_options() {
  static const std::set<std::string> names{"metrics-file", "tensorboard-dir", "gemm-cache", "data-cache-path",
                                           "hw",           "threads",         "supervisor"};
  return names;
}
/// A node's own path, which all ranks must have or none.
const std::set<std::string>& path_options() {
  static const std::set<std::string> names{
      "load",       "save",      "data-path", "train-data-path", "valid-data-path", "test-data-path", "tokenizer-model",
      "vocab-file", "merge-file"};
  return names;
}

Tensor text_view(std::string& text) { return {text.data(), DType::UInt8, {static_cast<int64_t>(text.size())}}; }

/// Everybody learns the text of `rank`.
std::string text_of_rank(comm::Communicator& world, const std::string& mine, int rank) {
  auto size = static_cast<int64_t>(mine.size());
  world.broadcast(Tensor(&size, DType::Int64, {1}), rank).wait();
  std::string text = mine;
  text.resize(static_cast<size_t>(size));
  world.broadcast(text_view(text), rank).wait();
  return text;
}

}  // namespace

std::string common_options(const io::RunOptions& options) {
  std::string text;
  for (const auto& [name, value] : io::option_values(options)) {
    if (own_options().contains(name)) continue;
    text += fmt::format("{} = {}\n", name, path_options().contains(name) ? "a path" : value);
  }
  return text;
}

std::string first_difference(const std::string& a, int rank_a, const std::string& b, int rank_b) {
  const std::map<std::string, std::string> of_a = io::values_in(a);
  const std::map<std::string, std::string> of_b = io::values_in(b);
  const auto value_in = [](const std::map<std::string, std::string>& values, const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string("not given") : found->second;
  };
  for (const io::OptionEntry& entry : io::option_table()) {
    const std::string value_a = value_in(of_a, entry.name);
    const std::string value_b = value_in(of_b, entry.name);
    if (value_a == value_b) continue;
    return fmt::format("--{}: {} on rank {}, {} on rank {}", entry.name, value_a, rank_a, value_b, rank_b);
  }
  return {};
}

void check_same_options(const io::RunOptions& options, comm::Communicator& world) {
  const std::string text = common_options(options);
  const auto hash = static_cast<int64_t>(io::checksum_of(text.data(), text.size()));
  std::array<int64_t, 2> extremes{hash, ~hash};  // the largest, and the complement of the smallest
  world.all_reduce(Tensor(extremes.data(), DType::Int64, {2}), comm::ReduceOp::Max).wait();
  if (extremes[0] == ~extremes[1]) return;
  int64_t mine = hash;
  std::vector<int64_t> all(static_cast<size_t>(world.size()));
  world.all_gather(Tensor(&mine, DType::Int64, {1}), Tensor(all.data(), DType::Int64, {world.size()})).wait();
  const auto other = std::find_if(all.begin(), all.end(), [&](int64_t one) { return one != all[0]; });
  const auto rank = static_cast<int>(other - all.begin());
  const std::string of_first = text_of_rank(world, text, 0);
  const std::string of_other = text_of_rank(world, text, rank);
  throw ConfigError(fmt::format("{}: give all ranks the same options, in one command such as mpiexec -n {} triax train",
                                first_difference(of_first, 0, of_other, rank), world.size()));
}

}  // namespace triax::train

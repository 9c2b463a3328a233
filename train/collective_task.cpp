#include "train/collective_task.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>

#include "base/error.h"
#include "train/watched_task.h"

namespace triax::train {
namespace {

constexpr size_t kWords = 4096;

enum class Outcome { Done, BadConfig, Failed };

struct Failure {
  Outcome outcome = Outcome::Done;
  std::string words;
};

Failure end_of(std::optional<WatchedTask>& task) {
  try {
    if (task) task->get();
    return {};
  } catch (const ConfigError& error) {
    return {Outcome::BadConfig, error.what()};
  } catch (const std::exception& error) {
    return {Outcome::Failed, error.what()};
  }
}

double reduce(comm::Communicator& world, double value, comm::ReduceOp op) {
  world.all_reduce(Tensor(&value, DType::Float64, {1}), op).wait();
  return value;
}

/// Everybody learns the words of `rank`.
Failure share(comm::Communicator& world, const Failure& mine, int rank) {
  std::array<char, kWords> text{};
  if (world.rank() == rank) {
    text[0] = static_cast<char>(mine.outcome);
    std::strncpy(text.data() + 1, mine.words.c_str(), kWords - 2);
  }
  world.broadcast(Tensor(text.data(), DType::UInt8, {static_cast<int64_t>(kWords)}), rank).wait();
  return {static_cast<Outcome>(text[0]), text.data() + 1};
}

}  // namespace

void run_collectively(comm::Communicator& world, TakePart take_part, double patience_s,
                      const std::function<void()>& task) {
  std::optional<WatchedTask> mine_runs;
  if (take_part == TakePart::Yes) mine_runs.emplace(task, patience_s);
  for (bool waiting = true; waiting;) {
    // Whoever has nothing to do waits in the all-reduce.
    const bool ready = !mine_runs || mine_runs->beat();
    waiting = reduce(world, ready ? 0 : 1, comm::ReduceOp::Max) > 0;
  }
  const Failure mine = end_of(mine_runs);
  const int none = world.size();
  const double failed = mine.outcome == Outcome::Done ? none : world.rank();
  const int first = static_cast<int>(reduce(world, failed, comm::ReduceOp::Min));
  if (first == none) return;
  const Failure failure = share(world, mine, first);
  if (failure.outcome == Outcome::BadConfig) throw ConfigError(failure.words);
  const std::string words = "rank " + std::to_string(first) + ": " + failure.words;
  // Where several failed the lowest is told of, and the others are not reported with its words.
  if (world.rank() != first) throw ToldError(words);
  throw RunTimeError(words);
}

}  // namespace triax::train

// Runs the program without time: ops in order, sends never block, receives and sums over positions do.
#include <fmt/format.h>

#include <unordered_set>

#include "parallel/checker_parts.h"
#include "parallel/program_print.h"

namespace triax::parallel {
namespace {

class Progress {
 public:
  explicit Progress(const Program& program)
      : program_(program), next_(static_cast<size_t>(program.pipeline), 0), calls_(next_.size()) {}

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int i = 0; i < program_.pipeline; ++i) {
        while (!done(i) && may_pass(i)) {
          pass(i);
          moved = true;
        }
      }
    }
  }

  bool done(int i) const { return next_[index(i)] == ops(i).size(); }

  /// Position that `i` waits for.
  int waits_for(int i) const {
    const Op& op = ops(i)[next_[index(i)]];
    if (is_receive(op.kind)) return (i + op.peer_offset) % program_.pipeline;
    for (int j = 0; j < program_.pipeline; ++j) {
      if (j != i && !has_come(j, i)) return j;
    }
    return i;
  }
  int at(int i) const { return static_cast<int>(next_[index(i)]); }

 private:
  struct Calls {
    int embedding = 0, world = 0;
    bool counted = false;  // this position's call at next_ is counted
    int of(SpanningGroup group) const { return group == SpanningGroup::World ? world : embedding; }
  };
  static size_t index(int i) { return static_cast<size_t>(i); }
  const std::vector<Op>& ops(int i) const { return program_.positions[index(i)]; }

  // Whether position j has made as many calls on the group as i is about to have made.
  bool has_come(int j, int i) const {
    const SpanningGroup group = spanning_group(program_, i, ops(i)[next_[index(i)]]);
    return !is_member(program_, j, group) || calls_[index(j)].of(group) >= calls_[index(i)].of(group);
  }

  bool may_pass(int i) {
    const Op& op = ops(i)[next_[index(i)]];
    if (is_receive(op.kind)) return sent_.contains(op.match);
    const SpanningGroup group = spanning_group(program_, i, op);
    if (group == SpanningGroup::None) return true;
    Calls& calls = calls_[index(i)];
    if (!calls.counted) ++(group == SpanningGroup::World ? calls.world : calls.embedding);
    calls.counted = true;
    for (int j = 0; j < program_.pipeline; ++j) {
      if (!has_come(j, i)) return false;
    }
    return true;
  }

  void pass(int i) {
    const Op& op = ops(i)[next_[index(i)]++];
    calls_[index(i)].counted = false;
    if (is_send(op.kind)) sent_.insert(op.match);
  }

  const Program& program_;
  std::vector<size_t> next_;
  std::vector<Calls> calls_;
  std::unordered_set<int64_t> sent_;
};

}  // namespace

void check_progress(const Program& program, Faults& faults) {
  Progress progress(program);
  progress.run();
  int start = 0;
  while (start < program.pipeline && progress.done(start)) ++start;
  if (start == program.pipeline) return;
  // Following who waits for whom ends in a cycle, or at a position that has ended without sending.
  std::string chain;
  std::unordered_set<int> seen;
  int i = start;
  while (!progress.done(i) && seen.insert(i).second) {
    const int peer = progress.waits_for(i);
    chain += fmt::format("{}{} waits for position {}", chain.empty() ? "" : "; ", place_of(program, i, progress.at(i)),
                         peer);
    i = peer;
  }
  faults.push_back("deadlock: " + chain + (progress.done(i) ? ", which has ended" : ""));
}

}  // namespace triax::parallel

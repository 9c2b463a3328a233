#include "comm/clock_alignment.h"

#include <algorithm>
#include <limits>

namespace triax::comm {
namespace {

constexpr int kClockTag = 2;

Tensor one(double& value) { return Tensor(&value, DType::Float64, {1}); }

struct Reading {
  double offset_s = 0, error_s = 0;
};

Reading read_clock_of_rank_0(Communicator& world, const std::function<double()>& clock, int rounds) {
  Reading best{0, std::numeric_limits<double>::infinity()};
  for (int i = 0; i < rounds; ++i) {
    double theirs = 0;
    double before = clock();
    world.send(one(before), 0, kClockTag).wait();
    world.recv(one(theirs), 0, kClockTag).wait();
    const double after = clock();
    if ((after - before) / 2 < best.error_s) best = {(before + after) / 2 - theirs, (after - before) / 2};
  }
  return best;
}

void answer(Communicator& world, int peer, const std::function<double()>& clock, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    double asked = 0;
    world.recv(one(asked), peer, kClockTag).wait();
    double now = clock();
    world.send(one(now), peer, kClockTag).wait();
  }
}

}  // namespace

ClockAlignment align_clocks(Communicator& world, const std::vector<int>& nodes, const std::function<double()>& clock,
                            int rounds) {
  ensure(static_cast<int>(nodes.size()) == world.size(), "align_clocks: a node for each rank");
  std::vector<int> firsts;  // of each node its first rank
  std::vector<size_t> node_index;
  std::vector<int> seen;
  for (size_t r = 0; r < nodes.size(); ++r) {
    const auto found = std::find(seen.begin(), seen.end(), nodes[r]);
    node_index.push_back(static_cast<size_t>(found - seen.begin()));
    if (found != seen.end()) continue;
    seen.push_back(nodes[r]);
    firsts.push_back(static_cast<int>(r));
  }
  ClockAlignment alignment;
  alignment.clocks = static_cast<int>(firsts.size());
  if (firsts.size() == 1) return alignment;
  Reading mine;
  for (size_t i = 1; i < firsts.size(); ++i) {
    if (world.rank() == 0) answer(world, firsts[i], clock, rounds);
    if (world.rank() == firsts[i]) mine = read_clock_of_rank_0(world, clock, rounds);
  }
  std::vector<double> all(2 * nodes.size());
  world
      .all_gather(Tensor(&mine, DType::Float64, {2}),
                  Tensor(all.data(), DType::Float64, {2 * static_cast<int64_t>(nodes.size())}))
      .wait();
  const auto own = static_cast<size_t>(firsts[node_index[static_cast<size_t>(world.rank())]]);
  alignment.offset_s = all[2 * own];
  // Two ranks, neither of them rank 0, may err to opposite sides.
  std::vector<double> errors;
  for (const int first : firsts) errors.push_back(all[2 * static_cast<size_t>(first) + 1]);
  std::sort(errors.rbegin(), errors.rend());
  alignment.error_s = errors[0] + errors[1];
  return alignment;
}

}  // namespace triax::comm

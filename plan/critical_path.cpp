#include "plan/critical_path.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

namespace triax::plan {
namespace {

using parallel::Op;
using parallel::OpKind;
using parallel::OpTime;

struct Place {
  int position = -1, index = -1;
  bool found() const { return position >= 0; }
};

class PathWalk {
 public:
  explicit PathWalk(const SimulatedStep& step) : step_(step) {
    for (int i = 0; i < step.program.pipeline; ++i) {
      const auto& ops = step.program.positions[static_cast<size_t>(i)];
      for (int k = 0; k < static_cast<int>(ops.size()); ++k) {
        if (is_send(ops[static_cast<size_t>(k)].kind)) sends_[ops[static_cast<size_t>(k)].match] = {i, k};
      }
    }
  }

  CriticalPath run() {
    Place at = last();
    int64_t now = at.found() ? time(at).stop_ps : 0;
    while (at.found() && now > 0) {
      at = is_receive(op(at).kind) ? through_receive(at, now) : through_op(at, now);
    }
    if (now > 0) add("other replicas", -1, now);
    CriticalPath path;
    for (const auto& [key, ps] : sums_) path.shares.push_back({key.second, key.first, ps});
    std::stable_sort(path.shares.begin(), path.shares.end(),
                     [](const PathShare& a, const PathShare& b) { return a.ps > b.ps; });
    path.ops = links_;
    return path;
  }

 private:
  const Op& op(Place p) const {
    return step_.program.positions[static_cast<size_t>(p.position)][static_cast<size_t>(p.index)];
  }
  const OpTime& time(Place p) const {
    return step_.simulation.times[static_cast<size_t>(p.position)][static_cast<size_t>(p.index)];
  }
  int size(int position) const {
    return static_cast<int>(step_.program.positions[static_cast<size_t>(position)].size());
  }

  void add(const std::string& what, int position, int64_t ps) {
    if (ps <= 0) return;
    sums_[{position, what}] += ps;
    ++links_;
  }

  Place last() const {
    Place best;
    for (int i = 0; i < step_.program.pipeline; ++i) {
      for (int k = 0; k < size(i); ++k) {
        if (!best.found() || time({i, k}).stop_ps > time(best).stop_ps) best = {i, k};
      }
    }
    return best;
  }

  /// The op of the same position before `at`, on the lane or beside it, that ends at `when`.
  Place before(Place at, int64_t when) const {
    bool lane = true;  // the op of the lane before `at` is still to come
    Place beside;
    for (int k = at.index - 1; k >= 0; --k) {
      const Place p{at.position, k};
      const bool ends = time(p).stop_ps == when;
      if (beside_compute(op(p))) {
        if (ends && !beside.found()) beside = p;
      } else if (lane) {
        if (ends) return p;
        lane = false;  // the lane was free before: it waited for something beside it
      }
      if (!lane && beside.found()) break;
    }
    return beside;
  }

  /// Any op that ends at `when`, on another position: a meeting starts when its last partner comes.
  Place partner(Place at, int64_t when) const {
    for (int i = 0; i < step_.program.pipeline; ++i) {
      if (i == at.position) continue;
      for (int k = size(i); k-- > 0;) {
        const Place p{i, k};
        if (time(p).stop_ps == when && time(p).start_ps < when) return p;
      }
    }
    return {};
  }

  Place through_receive(Place at, int64_t& now) {
    if (time(at).start_ps == now) return before(at, now);
    const Place send = sends_.at(op(at).match);
    const int64_t sent = time(send).start_ps;
    add("message", -1, now - sent);
    now = sent;
    return before(send, now);
  }

  Place through_op(Place at, int64_t& now) {
    const int64_t start = time(at).start_ps;
    add(name_of(op(at).kind), at.position, now - start);
    now = start;
    if (now == 0) return {};
    const Place own = before(at, now);
    const bool meets = op(at).kind == OpKind::GradientNorm || op(at).kind == OpKind::SumTied;
    return own.found() || !meets ? own : partner(at, now);
  }

  const SimulatedStep& step_;
  std::unordered_map<int64_t, Place> sends_;
  std::map<std::pair<int, std::string>, int64_t> sums_;
  int64_t links_ = 0;
};

}  // namespace

int64_t CriticalPath::total_ps() const {
  return std::accumulate(shares.begin(), shares.end(), int64_t{0},
                         [](int64_t sum, const PathShare& share) { return sum + share.ps; });
}

CriticalPath critical_path(const SimulatedStep& step) { return PathWalk(step).run(); }

}  // namespace triax::plan

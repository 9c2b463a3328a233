#include "parallel/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"

namespace triax::parallel {
namespace {

constexpr int64_t kNotYet = -1;  // arrivals: kNotYet, or kNotYet - 1 - waiting lane

// Lanes that must all come before it starts.
struct Meeting {
  int missing = 0;
  int64_t ready_ps = 0;
  OpTime time{kNotYet, kNotYet};
  std::vector<int> waiting;  // lanes to wake

  bool over() const { return missing == 0; }
  // True when this was the last one.
  bool arrive(int64_t ready) {
    ready_ps = std::max(ready_ps, ready);
    return --missing == 0;
  }
};

struct LaneState {
  Lane lane;
  size_t next = 0;
  int64_t clock_ps = 0;
  int reductions = 0;       // ReduceGradients and GatherParameters that this lane has reached
  int tied = 0, norms = 0;  // likewise
  bool met = false;         // the lane has come to the meeting at `next`
  IdleAccount account;
};

class Engine {
 public:
  Engine(const Program& program, const CostTable& table, const SimulationOptions& options)
      : program_(program),
        replicas_(options.time.varies() ? options.replicas : 1),
        recorded_(options.time.varies() ? options.recorded_replica : 0),
        model_(program, table, options.replicas, options.time) {
    result_.times.resize(program.positions.size());
    for (size_t i = 0; i < program.positions.size(); ++i) result_.times[i].resize(program.positions[i].size());
    make_lanes();
    make_meetings();
  }

  Simulation run() {
    std::vector<int> ready;
    for (int lane = static_cast<int>(lanes_.size()); lane-- > 0;) ready.push_back(lane);
    while (!ready.empty()) {
      const int lane = ready.back();
      ready.pop_back();
      advance(lane, ready);
    }
    for (const LaneState& s : lanes_) {
      ensure(s.next == ops_of(s).size(), fmt::format("simulate: position {} of replica {} never goes on from op {}",
                                                     s.lane.position, s.lane.replica, s.next));
    }
    report();
    return std::move(result_);
  }

 private:
  const std::vector<Op>& ops_of(const LaneState& s) const {
    return program_.positions[static_cast<size_t>(s.lane.position)];
  }
  int pipeline() const { return static_cast<int>(program_.positions.size()); }

  void make_lanes() {
    std::vector<PhaseBorders> borders;
    for (const auto& ops : program_.positions) {
      borders.push_back(phase_borders(ops));
      for (const Op& op : ops) num_matches_ = std::max(num_matches_, op.match + 1);
    }
    for (int r = 0; r < replicas_; ++r) {
      for (int i = 0; i < pipeline(); ++i) {
        LaneState state;
        state.lane = {r, i};
        state.account = IdleAccount(borders[static_cast<size_t>(i)]);
        lanes_.push_back(state);
      }
    }
    arrivals_.assign(static_cast<size_t>(num_matches_) * static_cast<size_t>(replicas_), kNotYet);
    flights_.assign(static_cast<size_t>(num_matches_), 0);
  }

  // Counts how often each position reaches each kind of meeting: the k-th time is one meeting of all that get there.
  void make_meetings() {
    reductions_.resize(program_.positions.size());
    gathers_.assign(program_.positions.size(), std::vector<int>(static_cast<size_t>(program_.chunks), -1));
    std::vector<Meeting> tied, norms;
    for (size_t i = 0; i < program_.positions.size(); ++i) {
      size_t t = 0;
      size_t n = 0;
      for (const Op& op : program_.positions[i]) {
        if (op.kind == OpKind::GatherParameters && op.stream == Stream::Data) {
          gathers_[i][static_cast<size_t>(op.chunk)] = static_cast<int>(reductions_[i].size());
        }
        if (op.kind == OpKind::ReduceGradients || op.kind == OpKind::GatherParameters) {
          reductions_[i].emplace_back();
          reductions_[i].back().missing = replicas_;
        }
        if (op.kind == OpKind::SumTied) expect(tied, t++);
        if (op.kind == OpKind::GradientNorm) expect(norms, n++);
      }
    }
    tied_.assign(static_cast<size_t>(replicas_), tied);
    norms_.assign(static_cast<size_t>(replicas_), norms);
  }
  static void expect(std::vector<Meeting>& meetings, size_t index) {
    if (meetings.size() <= index) meetings.resize(index + 1);
    ++meetings[index].missing;
  }

  void advance(int number, std::vector<int>& ready) {
    LaneState& s = lanes_[static_cast<size_t>(number)];
    const std::vector<Op>& ops = ops_of(s);
    while (s.next < ops.size()) {
      const Op& op = ops[s.next];
      const bool done = is_receive(op.kind) ? receive(number, op)
                        : is_send(op.kind)  ? send(s, op, ready)
                                            : local(number, op, ready);
      if (!done) return;
      ++s.next;
    }
  }

  size_t slot(const LaneState& s, const Op& op) const {
    return static_cast<size_t>(s.lane.replica * num_matches_ + op.match);
  }

  bool receive(int number, const Op& op) {
    LaneState& s = lanes_[static_cast<size_t>(number)];
    int64_t& arrival = arrivals_[slot(s, op)];
    if (arrival <= kNotYet) {
      arrival = kNotYet - 1 - number;
      return false;
    }
    const int64_t stop = std::max(s.clock_ps, arrival);
    s.account.receive(static_cast<int>(s.next), s.clock_ps, stop, flights_[static_cast<size_t>(op.match)]);
    record(s, {s.clock_ps, stop});
    s.clock_ps = stop;
    return true;
  }

  bool send(LaneState& s, const Op& op, std::vector<int>& ready) {
    const int64_t flight = model_.flight_ps(s.lane.position, op);
    flights_[static_cast<size_t>(op.match)] = flight;
    int64_t& arrival = arrivals_[slot(s, op)];
    if (arrival < kNotYet) ready.push_back(static_cast<int>(kNotYet - 1 - arrival));
    arrival = s.clock_ps + flight;
    record(s, {s.clock_ps, s.clock_ps});
    return true;
  }

  bool local(int number, const Op& op, std::vector<int>& ready) {
    LaneState& s = lanes_[static_cast<size_t>(number)];
    if (op.kind == OpKind::SumTied || op.kind == OpKind::SumTensorPartial) return sum(number, op, ready);
    if (op.kind == OpKind::GradientNorm) return norm(number, op, ready);
    if (op.kind == OpKind::ReduceGradients || op.kind == OpKind::GatherParameters) return reduce(number, op, ready);
    if (is_forward(op.kind) && !await_gathers(number, op)) return false;
    const int64_t stop = s.clock_ps + model_.duration_ps(s.lane, op, static_cast<int>(s.next));
    if (is_compute(op.kind)) s.account.compute(s.clock_ps, stop);
    if (op.kind == OpKind::LoadBatch) s.account.load(s.clock_ps, stop);
    if (is_message_gather(op.kind)) {
      s.account.receive(static_cast<int>(s.next), s.clock_ps, stop, stop - s.clock_ps);
    }
    record(s, {s.clock_ps, stop});
    s.clock_ps = stop;
    return true;
  }

  // Forwards start when the gathers of their chunk are through.
  bool await_gathers(int number, const Op& op) {
    LaneState& s = lanes_[static_cast<size_t>(number)];
    const auto position = static_cast<size_t>(s.lane.position);
    const int gather = gathers_[position][static_cast<size_t>(op.chunk)];
    if (gather < 0) return true;
    Meeting& meeting = reductions_[position][static_cast<size_t>(gather)];
    if (!meeting.over()) {
      meeting.waiting.push_back(number);
      return false;
    }
    if (meeting.time.stop_ps > s.clock_ps) {
      s.account.collective(s.clock_ps, meeting.time.stop_ps);
      s.clock_ps = meeting.time.stop_ps;
    }
    return true;
  }

  // Holds the lane until the meeting is over. `ready_ps`: when this lane could start.
  bool meet(int number, Meeting& meeting, int64_t ready_ps, const Op& op, std::vector<int>& ready) {
    LaneState& s = lanes_[static_cast<size_t>(number)];
    if (!s.met) {
      s.met = true;
      if (!meeting.arrive(ready_ps)) {
        meeting.waiting.push_back(number);
        return false;
      }
      settle(meeting, meeting.ready_ps, s, op, ready);
    }
    s.met = false;
    s.account.collective(s.clock_ps, meeting.time.stop_ps);
    record(s, meeting.time);
    s.clock_ps = meeting.time.stop_ps;
    return true;
  }

  void settle(Meeting& meeting, int64_t start_ps, const LaneState& s, const Op& op, std::vector<int>& ready) {
    meeting.time = {start_ps, start_ps + model_.duration_ps(s.lane, op, static_cast<int>(s.next))};
    ready.insert(ready.end(), meeting.waiting.begin(), meeting.waiting.end());
  }

  bool reduce(int number, const Op& op, std::vector<int>& ready) {
    LaneState& s = lanes_[static_cast<size_t>(number)];
    auto& reductions = reductions_[static_cast<size_t>(s.lane.position)];
    const auto k = static_cast<size_t>(s.reductions);
    Meeting& meeting = reductions[k];
    if (op.stream != Stream::Data) {
      if (!meet(number, meeting, s.clock_ps, op, ready)) return false;
      ++s.reductions;
      return true;
    }
    if (meeting.arrive(s.clock_ps)) {
      const int64_t previous = k > 0 ? reductions[k - 1].time.stop_ps : 0;
      settle(meeting, std::max(meeting.ready_ps, previous), s, op, ready);
      if (s.lane.replica == recorded_ || replicas_ > 1) {
        result_.times[static_cast<size_t>(s.lane.position)][s.next] = meeting.time;  // the same for all replicas
      }
    }
    ++s.reductions;
    return true;
  }

  // When the lane goes on that waits for all its reductions so far; nothing while one is not over.
  std::optional<int64_t> after_reductions(int number) {
    LaneState& s = lanes_[static_cast<size_t>(number)];
    if (s.reductions == 0) return s.clock_ps;
    Meeting& last = reductions_[static_cast<size_t>(s.lane.position)][static_cast<size_t>(s.reductions - 1)];
    if (!last.over()) {
      last.waiting.push_back(number);
      return std::nullopt;
    }
    return std::max(s.clock_ps, last.time.stop_ps);
  }

  // Sums of what the reductions over dp have left.
  bool sum(int number, const Op& op, std::vector<int>& ready) {
    LaneState& s = lanes_[static_cast<size_t>(number)];
    const std::optional<int64_t> start = after_reductions(number);
    if (!start) return false;
    if (op.kind == OpKind::SumTied) {
      Meeting& meeting = tied_[static_cast<size_t>(s.lane.replica)][static_cast<size_t>(s.tied)];
      if (!meet(number, meeting, *start, op, ready)) return false;
      ++s.tied;
      return true;
    }
    const int64_t stop = *start + model_.duration_ps(s.lane, op, static_cast<int>(s.next));
    s.account.collective(s.clock_ps, stop);
    record(s, {*start, stop});
    s.clock_ps = stop;
    return true;
  }

  bool norm(int number, const Op& op, std::vector<int>& ready) {
    LaneState& s = lanes_[static_cast<size_t>(number)];
    const std::optional<int64_t> start = after_reductions(number);
    if (!start) return false;
    const int64_t ready_ps = *start;
    auto& meetings = norms_[static_cast<size_t>(s.lane.replica)];
    if (!meet(number, meetings[static_cast<size_t>(s.norms)], ready_ps, op, ready)) return false;
    ++s.norms;
    return true;
  }

  void record(const LaneState& s, OpTime time) {
    if (s.lane.replica == recorded_) result_.times[static_cast<size_t>(s.lane.position)][s.next] = time;
  }

  void report() {
    std::vector<int64_t> pass_end(static_cast<size_t>(replicas_), 0);
    for (const LaneState& s : lanes_) {
      int64_t& end = pass_end[static_cast<size_t>(s.lane.replica)];
      end = std::max(end, s.account.last_ps());
      result_.makespan_ps = std::max({result_.makespan_ps, s.clock_ps, end});
    }
    for (const auto& reductions : reductions_) {
      if (!reductions.empty()) result_.makespan_ps = std::max(result_.makespan_ps, reductions.back().time.stop_ps);
    }
    result_.stages.resize(program_.positions.size());
    double busy = 0;
    for (const LaneState& s : lanes_) {
      const auto r = static_cast<size_t>(s.lane.replica);
      const int64_t norm_start = norms_[r].empty() ? result_.makespan_ps : norms_[r][0].time.start_ps;
      const IdleSplit idle = s.account.finish(pass_end[r], norm_start, result_.makespan_ps);
      StageTimes& stage = result_.stages[static_cast<size_t>(s.lane.position)];
      stage.busy_ps += s.account.busy_ps();
      for (size_t c = 0; c < idle.ps.size(); ++c) stage.idle.ps[c] += idle.ps[c];
      stage.span_ps = std::max(stage.span_ps, s.account.last_ps() - std::max<int64_t>(s.account.first_ps(), 0));
      result_.span_ps = std::max(result_.span_ps, stage.span_ps);
      busy += static_cast<double>(s.account.busy_ps());
    }
    for (StageTimes& stage : result_.stages) {
      stage.busy_ps /= replicas_;
      for (int64_t& ps : stage.idle.ps) ps /= replicas_;
    }
    if (busy > 0) {
      const double all = static_cast<double>(result_.span_ps) * static_cast<double>(lanes_.size());
      result_.bubble_of_total = 1 - busy / all;
      result_.bubble_of_ideal = all / busy - 1;
    }
  }

  const Program& program_;
  int replicas_;
  int recorded_;
  TimeModel model_;
  int64_t num_matches_ = 0;
  std::vector<LaneState> lanes_;                  // [replica * p + position]
  std::vector<int64_t> arrivals_;                 // [replica][match]
  std::vector<int64_t> flights_;                  // [match]
  std::vector<std::vector<Meeting>> reductions_;  // [position][k]: all replicas
  std::vector<std::vector<int>> gathers_;         // [position][chunk]: the last meeting its forwards wait for, or -1
  std::vector<std::vector<Meeting>> tied_;        // [replica][k]: the positions that have one
  std::vector<std::vector<Meeting>> norms_;       // [replica][k]: all positions
  Simulation result_;
};

}  // namespace

Simulation simulate(const Program& program, const CostTable& table, const SimulationOptions& options) {
  if (table.pipeline != program.pipeline || table.chunks != program.chunks) {
    throw ConfigError(fmt::format("the cost table is for {} stages of {} chunks, the program has {} of {}",
                                  table.pipeline, table.chunks, program.pipeline, program.chunks));
  }
  return Engine(program, table, options).run();
}

}  // namespace triax::parallel

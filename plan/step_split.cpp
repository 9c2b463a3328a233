#include "plan/step_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/error.h"

namespace triax::plan {
namespace {

using parallel::Op;
using parallel::OpKind;
using parallel::OpTime;

constexpr size_t kParts = kNumTimeParts;

/// Seconds of one execution, by part.
using Weights = std::array<double, kParts>;

void add(Weights& weights, const OpParts& parts) {
  const auto at = [&](TimePart part) -> double& { return weights[static_cast<size_t>(part)]; };
  at(TimePart::Gemm) += parts.gemm_s;
  at(TimePart::Attention) += parts.attention_s;
  at(TimePart::Elementwise) += parts.elementwise_s;
  at(TimePart::Launch) += parts.launch_s;
  at(TimePart::TensorComm) += parts.tensor_s;
  at(TimePart::ZeroGather) += parts.gather_s;
}

void add_recompute(Weights& weights, const OpParts& parts) {
  const double computing = parts.gemm_s + parts.attention_s + parts.elementwise_s + parts.launch_s;
  weights[static_cast<size_t>(TimePart::Recompute)] += computing;
  weights[static_cast<size_t>(TimePart::TensorComm)] += parts.tensor_s;
  weights[static_cast<size_t>(TimePart::ZeroGather)] += parts.gather_s;
}

/// Whether backwards hold the recomputation (programs without R ops) or ops of its own.
enum class RecomputeIn { Backward, Ops };

Weights inside_of(OpKind kind, const StageParts& stage, RecomputeIn recompute) {
  Weights weights{};
  if (is_forward(kind)) add(weights, stage.forward);
  if (is_backward_input(kind)) {
    add(weights, stage.backward_input);
    if (recompute == RecomputeIn::Backward) add_recompute(weights, stage.recompute);
  }
  if (is_backward_weight(kind)) add(weights, stage.backward_weight);
  if (kind == OpKind::Recompute) add_recompute(weights, stage.recompute);
  return weights;
}

TimePart part_of_collective(OpKind kind) {
  switch (kind) {
    case OpKind::SumTensorPartial:
      return TimePart::TensorComm;
    case OpKind::SumTied:
      return TimePart::PipelineComm;
    case OpKind::GatherParameters:
      return TimePart::ZeroGather;
    case OpKind::ReduceGradients:
      return TimePart::DataReduce;
    default:
      return TimePart::Optimizer;
  }
}

/// One position's ops in order; the same walk as parallel::account_of, with finer causes.
class PositionWalk {
 public:
  PositionWalk(const parallel::Program& program, int position, std::span<const OpTime> times,
               const std::unordered_map<int64_t, int64_t>& flights)
      : ops_(program.positions[static_cast<size_t>(position)]),
        times_(times),
        flights_(flights),
        borders_(parallel::phase_borders(ops_)),
        compute_(static_cast<size_t>(program.chunks) * parallel::kNumOpKinds, 0) {
    for (size_t k = 0; k < ops_.size(); ++k) {
      if (is_compute(ops_[k].kind)) last_compute_ = static_cast<int>(k);
    }
  }

  int64_t pass_end() const { return last_compute_ < 0 ? 0 : times_[static_cast<size_t>(last_compute_)].stop_ps; }

  TimeSplit split(std::span<const StageParts> chunks, RecomputeIn recompute, int64_t pass_end_ps, int64_t end_ps) {
    for (int k = 0; k <= last_compute_; ++k) within_pass(k);
    const int64_t from = std::max(now_, pass_end());
    split_[TimePart::BubbleDrain] += pass_end_ps - from;
    after_pass(pass_end_ps, end_ps);
    spread_compute(chunks, recompute);
    return split_;
  }

 private:
  void within_pass(int k) {
    const Op& op = ops_[static_cast<size_t>(k)];
    const auto [start, stop] = times_[static_cast<size_t>(k)];
    if (beside_compute(op)) {
      if (op.kind == OpKind::GatherParameters) gathered_.push_back(op.chunk);
      return;
    }
    if (is_forward(op.kind) && std::erase(gathered_, op.chunk) > 0) {
      split_[TimePart::ZeroGather] += std::max<int64_t>(0, start - now_);
    }
    if (is_compute(op.kind)) {
      compute_[static_cast<size_t>(op.chunk * parallel::kNumOpKinds + static_cast<int>(op.kind))] += stop - start;
    } else if (op.kind == OpKind::LoadBatch) {
      split_[TimePart::Load] += stop - start;
    } else if (is_receive(op.kind)) {
      receive(k, op, stop - start);
    } else if (is_message_gather(op.kind)) {
      split_[TimePart::PipelineComm] += stop - start;
    } else if (!is_send(op.kind)) {
      split_[part_of_collective(op.kind)] += stop - now_;
    }
    now_ = stop;
  }

  void receive(int k, const Op& op, int64_t wait) {
    const int64_t on_wire = std::min(wait, flights_.at(op.match));
    split_[TimePart::PipelineComm] += on_wire;
    const TimePart cause = k < borders_.first_backward ? TimePart::BubbleFill
                           : k > borders_.last_forward ? TimePart::BubbleDrain
                                                       : TimePart::BubbleImbalance;
    split_[cause] += wait - on_wire;
  }

  // From the end of all computing to the end of the step: each op's own time, and before it what it waits for.
  void after_pass(int64_t cursor, int64_t end_ps) {
    int64_t reduced = 0;  // end of the sums that run beside the lane
    for (size_t k = 0; k < ops_.size(); ++k) {
      if (beside_compute(ops_[k]) && ops_[k].kind == OpKind::ReduceGradients) {
        reduced = std::max(reduced, times_[k].stop_ps);
      }
    }
    const auto wait_until = [&](int64_t until) {
      const int64_t summed = std::clamp(reduced, cursor, std::max(cursor, until));
      split_[TimePart::DataReduce] += summed - cursor;
      split_[TimePart::BubbleSync] += std::max(summed, until) - summed;
      cursor = std::max(summed, until);
    };
    for (size_t k = static_cast<size_t>(last_compute_ + 1); k < ops_.size(); ++k) {
      const Op& op = ops_[k];
      if (beside_compute(op) || is_send(op.kind) || is_receive(op.kind)) continue;
      const auto [start, stop] = times_[k];
      if (stop <= cursor) continue;
      wait_until(std::max(start, cursor));
      split_[part_of_collective(op.kind)] += stop - cursor;
      cursor = stop;
    }
    wait_until(end_ps);
  }

  void spread_compute(std::span<const StageParts> chunks, RecomputeIn recompute) {
    for (size_t i = 0; i < compute_.size(); ++i) {
      if (compute_[i] == 0) continue;
      const auto kind = static_cast<OpKind>(i % parallel::kNumOpKinds);
      const Weights weights = inside_of(kind, chunks[i / parallel::kNumOpKinds], recompute);
      const std::vector<int64_t> shares = apportion(compute_[i], weights);
      for (size_t part = 0; part < kParts; ++part) split_.ps[part] += shares[part];
    }
  }

  const std::vector<Op>& ops_;
  std::span<const OpTime> times_;
  const std::unordered_map<int64_t, int64_t>& flights_;
  parallel::PhaseBorders borders_;
  std::vector<int64_t> compute_;  // [chunk][kind]
  std::vector<int> gathered_;     // chunks whose first forward waits for gathers
  int last_compute_ = -1;
  int64_t now_ = 0;
  TimeSplit split_;
};

int64_t sum_of(const TimeSplit& split, TimePart first, TimePart last) {
  return std::accumulate(split.ps.begin() + static_cast<int>(first), split.ps.begin() + static_cast<int>(last) + 1,
                         int64_t{0});
}

}  // namespace

const char* name_of(TimePart part) {
  constexpr std::array<const char*, kParts> kNames{
      "gemm",        "attention",    "elementwise",      "launch",      "recompute",
      "load",        "tp_comm",      "zero_gather",      "dp_reduce",   "pp_comm",
      "bubble_fill", "bubble_drain", "bubble_imbalance", "bubble_sync", "optimizer"};
  return kNames[static_cast<size_t>(part)];
}

int64_t TimeSplit::total() const { return std::accumulate(ps.begin(), ps.end(), int64_t{0}); }
int64_t TimeSplit::compute() const { return sum_of(*this, TimePart::Gemm, TimePart::Load); }
int64_t TimeSplit::exposed() const { return sum_of(*this, TimePart::TensorComm, TimePart::PipelineComm); }
int64_t TimeSplit::bubble() const { return sum_of(*this, TimePart::BubbleFill, TimePart::BubbleSync); }

std::vector<int64_t> apportion(int64_t whole, std::span<const double> weights) {
  std::vector<int64_t> shares(weights.size(), 0);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (sum <= 0) {
    shares[0] = whole;
    return shares;
  }
  std::vector<std::pair<double, size_t>> remainders;
  int64_t left = whole;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double exact = static_cast<double>(whole) * (weights[i] / sum);
    shares[i] = std::min(static_cast<int64_t>(exact), left);
    left -= shares[i];
    if (weights[i] > 0) remainders.emplace_back(static_cast<double>(shares[i]) - exact, i);
  }
  std::sort(remainders.begin(), remainders.end());
  for (size_t i = 0; left > 0; i = (i + 1) % remainders.size(), --left) ++shares[remainders[i].second];
  return shares;
}

std::vector<TimeSplit> split_step(const parallel::Program& program, std::span<const std::vector<OpTime>> times,
                                  const parallel::CostTable& table, std::span<const StageParts> parts, int64_t end_ps) {
  std::unordered_map<int64_t, int64_t> flights;
  RecomputeIn recompute = RecomputeIn::Backward;
  for (int i = 0; i < program.pipeline; ++i) {
    for (const Op& op : program.positions[static_cast<size_t>(i)]) {
      if (is_send(op.kind)) flights[op.match] = cost_of(table, cost_key(program, i, op));
      if (op.kind == OpKind::Recompute) recompute = RecomputeIn::Ops;
    }
  }
  std::vector<PositionWalk> walks;
  int64_t pass_end = 0;
  for (int i = 0; i < program.pipeline; ++i) {
    walks.emplace_back(program, i, times[static_cast<size_t>(i)], flights);
    pass_end = std::max(pass_end, walks.back().pass_end());
  }
  std::vector<TimeSplit> splits;
  const auto chunks = static_cast<size_t>(program.chunks);
  for (size_t i = 0; i < walks.size(); ++i) {
    splits.push_back(walks[i].split(parts.subspan(i * chunks, chunks), recompute, pass_end, end_ps));
    ensure(splits.back().total() == end_ps,
           fmt::format("split_step: the parts of position {} sum to {} ps, the step takes {}", i, splits.back().total(),
                       end_ps));
  }
  return splits;
}

TimeSplit mean_of(std::span<const TimeSplit> splits) {
  if (splits.empty()) return {};
  std::array<double, kParts> sums{};
  for (const TimeSplit& split : splits) {
    for (size_t part = 0; part < kParts; ++part) sums[part] += static_cast<double>(split.ps[part]);
  }
  TimeSplit mean;
  const std::vector<int64_t> shares = apportion(splits.front().total(), sums);
  std::copy(shares.begin(), shares.end(), mean.ps.begin());
  return mean;
}

}  // namespace triax::plan

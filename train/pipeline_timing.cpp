#include "train/pipeline_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "parallel/closed_form.h"
#include "parallel/simulator.h"

namespace triax::train {

using parallel::IdleCause;
using parallel::Op;
using parallel::OpKind;
using parallel::OpTime;

OpTimes gather_op_times(const parallel::Program& program, std::span<const OpTime> own, comm::Communicator& pipeline) {
  size_t longest = 0;
  for (const auto& ops : program.positions) longest = std::max(longest, ops.size());
  std::vector<int64_t> mine(2 * longest, 0);
  for (size_t k = 0; k < own.size(); ++k) {
    mine[2 * k] = own[k].start_ps;
    mine[2 * k + 1] = own[k].stop_ps;
  }
  std::vector<int64_t> all(mine.size() * program.positions.size());
  pipeline
      .all_gather(Tensor(mine.data(), DType::Int64, {static_cast<int64_t>(mine.size())}),
                  Tensor(all.data(), DType::Int64, {static_cast<int64_t>(all.size())}))
      .wait();
  int64_t first = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < program.positions.size(); ++i) {
    if (!program.positions[i].empty()) first = std::min(first, all[i * mine.size()]);
  }
  OpTimes times(program.positions.size());
  for (size_t i = 0; i < times.size(); ++i) {
    for (size_t k = 0; k < program.positions[i].size(); ++k) {
      const int64_t* at = &all[i * mine.size() + 2 * k];
      times[i].push_back({at[0] - first, at[1] - first});
    }
  }
  return times;
}

PipelineTiming analyse(const parallel::Program& program, const OpTimes& times) {
  PipelineTiming timing;
  std::vector<parallel::IdleAccount> accounts;
  int64_t pass_end = 0;
  int64_t norm_start = -1;
  double busy = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    accounts.push_back(parallel::account_of(program.positions[i], times[i], {}));
    const parallel::IdleAccount& account = accounts.back();
    pass_end = std::max(pass_end, account.last_ps());
    timing.span_ps = std::max(timing.span_ps, account.last_ps() - std::max<int64_t>(account.first_ps(), 0));
    timing.busy_ps.push_back(account.busy_ps());
    for (size_t k = 0; k < times[i].size(); ++k) {
      timing.makespan_ps = std::max(timing.makespan_ps, times[i][k].stop_ps);
      // Loading is busy time too, but lies outside of the span.
      if (is_compute(program.positions[i][k].kind)) {
        busy += static_cast<double>(times[i][k].stop_ps - times[i][k].start_ps) / static_cast<double>(times.size());
      }
      if (program.positions[i][k].kind == OpKind::GradientNorm) norm_start = std::max(norm_start, times[i][k].start_ps);
    }
  }
  if (norm_start < 0) norm_start = timing.makespan_ps;
  for (const parallel::IdleAccount& account : accounts) {
    timing.idle.push_back(account.finish(pass_end, norm_start, timing.makespan_ps));
  }
  if (busy > 0) {
    timing.bubble_of_total = 1 - busy / static_cast<double>(timing.span_ps);
    timing.bubble_of_ideal = static_cast<double>(timing.span_ps) / busy - 1;
  }
  return timing;
}

parallel::CostTable mean_costs(const parallel::Program& program, const OpTimes& times) {
  parallel::CostTable table;
  table.pipeline = program.pipeline;
  table.chunks = program.chunks;
  table.links.resize(1);
  table.stages.resize(static_cast<size_t>(program.pipeline * program.chunks));
  table.positions.resize(static_cast<size_t>(program.pipeline));
  for (size_t i = 0; i < times.size(); ++i) {
    table.positions[i].reduce_ps = {0};
    for (int chunk = 0; chunk < program.chunks; ++chunk) {
      const auto mean = [&](OpKind kind) {
        int64_t sum = 0;
        int64_t count = 0;
        for (size_t k = 0; k < times[i].size(); ++k) {
          const Op& op = program.positions[i][k];
          if (op.kind != kind || op.chunk != chunk) continue;
          sum += times[i][k].stop_ps - times[i][k].start_ps;
          ++count;
        }
        return count > 0 ? sum / count : 0;
      };
      parallel::StageCost& cost = table.stages[i * static_cast<size_t>(program.chunks) + static_cast<size_t>(chunk)];
      cost.forward_ps = mean(OpKind::Forward);
      cost.backward_input_ps = mean(OpKind::Backward) + mean(OpKind::BackwardInput);
      cost.backward_weight_ps = mean(OpKind::BackwardWeight);
    }
  }
  return table;
}

namespace {

/// Bubble of total by the formula at the mean costs of a whole stage; nothing where none holds.
std::optional<double> closed_bubble(const parallel::ScheduleOptions& schedule, const parallel::CostTable& table) {
  parallel::StageCost whole;
  for (const parallel::StageCost& stage : table.stages) {
    whole.forward_ps += stage.forward_ps / table.pipeline;
    whole.backward_input_ps += stage.backward_input_ps / table.pipeline;
    whole.backward_weight_ps += stage.backward_weight_ps / table.pipeline;
  }
  const auto span = parallel::closed_form_span_ps(schedule, whole, 0);
  if (!span || *span == 0) return std::nullopt;
  const int64_t busy = whole.forward_ps + whole.backward_input_ps + whole.backward_weight_ps;
  return 1 - static_cast<double>(schedule.num_micro_batches) * static_cast<double>(busy) / static_cast<double>(*span);
}

std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

}  // namespace

std::string timing_report(const parallel::Program& program, const parallel::ScheduleOptions& schedule,
                          const OpTimes& times, const std::string& source, double unit_ps, const std::string& unit) {
  const PipelineTiming timing = analyse(program, times);
  const parallel::CostTable costs = mean_costs(program, times);
  const parallel::Simulation simulated = simulate(program, costs);
  const std::optional<double> closed = closed_bubble(schedule, costs);
  const auto units = [&](int64_t ps) { return static_cast<double>(ps) / unit_ps; };
  std::string text = fmt::format(
      "pipeline {} p{} v{} m{}, {}: bubble {} of total, {} of ideal (simulated at mean costs {} and {}, closed form "
      "{}) | "
      "span {:.6g} {}, makespan {:.6g} {}\n",
      program.schedule, program.pipeline, program.chunks, program.num_micro_batches, source,
      percent(timing.bubble_of_total), percent(timing.bubble_of_ideal), percent(simulated.bubble_of_total),
      percent(simulated.bubble_of_ideal), closed ? percent(*closed) : "none", units(timing.span_ps), unit,
      units(timing.makespan_ps), unit);
  auto out = std::back_inserter(text);
  fmt::format_to(out, "position       busy");
  for (int c = 0; c < parallel::kNumIdleCauses; ++c) fmt::format_to(out, " {:>10}", name_of(static_cast<IdleCause>(c)));
  fmt::format_to(out, "      other  ({})\n", unit);
  for (size_t i = 0; i < times.size(); ++i) {
    fmt::format_to(out, "{:>8} {:>10.4g}", i, units(timing.busy_ps[i]));
    for (int c = 0; c < parallel::kNumIdleCauses; ++c) {
      fmt::format_to(out, " {:>10.4g}", units(timing.idle[i][static_cast<IdleCause>(c)]));
    }
    fmt::format_to(out, " {:>10.4g}\n", units(timing.other_ps(i)));
  }
  return text;
}

}  // namespace triax::train

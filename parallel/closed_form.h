// What the papers' formulas say about a schedule, to stand beside simulated and measured times.
#pragma once

#include <cstdint>
#include <optional>

#include "parallel/cost_table.h"
#include "parallel/schedule.h"

namespace triax::parallel {

/// Longest span of a stage, first F to last W, when every stage costs `whole` and a hop takes `latency_ps`; f = F,
/// b = I + W, c = latency. Nothing where no formula is known to hold.
///   gpipe        (m+p-1)(f+b) + 2c(p-1)
///   1f1b         (m+p-1)(f+b) + 2c((p-1) m/p + p-2); with c > 0: p >= 2, p divides m
///   interleaved  m(f+b) + (p-1)(f+b)/v + 2c(vp-1); p divides m, c <= f/v
///   zb-h1        m(f+b) + (p-1)(F+I-W); c = 0, m >= p, W <= F, W <= I
///   zb-h2        m(f+b) + (p-1)(F+I-2W); c = 0, m >= 2p-1, W <= F, W <= I
///   zb-v         m(f+b); c = 0, m >= 2p, F = I = W
/// (Narayanan 2021 section 2.2, Qi 2023 section 2.3, Qi 2024; the latency terms are ours, proven by simulation.)
std::optional<int64_t> closed_form_span_ps(const ScheduleOptions& schedule, const StageCost& whole, int64_t latency_ps);

}  // namespace triax::parallel

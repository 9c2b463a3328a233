#include "parallel/closed_form.h"

namespace triax::parallel {

std::optional<int64_t> closed_form_span_ps(const ScheduleOptions& s, const StageCost& whole, int64_t c) {
  const int64_t p = s.pipeline;
  const int64_t v = s.chunks;
  const int64_t m = s.num_micro_batches;
  const int64_t F = whole.forward_ps;
  const int64_t I = whole.backward_input_ps;
  const int64_t W = whole.backward_weight_ps;
  const int64_t step = F + I + W;  // f + b
  const bool short_weight = W <= F && W <= I;
  switch (s.kind) {
    case ScheduleKind::GPipe:
      return (m + p - 1) * step + 2 * c * (p - 1);
    case ScheduleKind::OneFOneB:
      if (c == 0) return (m + p - 1) * step;
      if (p < 2 || m % p != 0) return std::nullopt;
      return (m + p - 1) * step + 2 * c * ((p - 1) * (m / p) + p - 2);
    case ScheduleKind::Interleaved:
      if (m % p != 0 || v * c > F || (s.group_size != 0 && s.group_size != p)) return std::nullopt;
      return m * step + (p - 1) * step / v + 2 * c * (v * p - 1);
    case ScheduleKind::ZeroBubbleH1:
      if (c != 0 || m < p || !short_weight) return std::nullopt;
      return m * step + (p - 1) * (F + I - W);
    case ScheduleKind::ZeroBubbleH2:
      if (c != 0 || m < 2 * p - 1 || !short_weight) return std::nullopt;
      return m * step + (p - 1) * (F + I - 2 * W);
    case ScheduleKind::ZeroBubbleV:
      if (c != 0 || m < 2 * p || F != I || I != W) return std::nullopt;
      return m * step;
    case ScheduleKind::Csv:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace triax::parallel

#include "parallel/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "parallel/schedule_zero_bubble.h"

namespace triax::parallel {
namespace {

Op compute(OpKind kind, int chunk, int micro_batch) {
  Op op;
  op.kind = kind;
  op.chunk = chunk;
  op.micro_batch = micro_batch;
  return op;
}

std::vector<Op> gpipe(int m) {
  std::vector<Op> ops;
  for (int i = 0; i < m; ++i) ops.push_back(compute(OpKind::Forward, 0, i));
  for (int i = 0; i < m; ++i) ops.push_back(compute(OpKind::Backward, 0, i));
  return ops;
}

// Warm-up, steady state of one forward and one backward, cool-down, over any two orders of equal length.
std::vector<Op> warmup_steady_cooldown(const std::vector<Op>& forwards, const std::vector<Op>& backwards,
                                       size_t warmup) {
  std::vector<Op> ops;
  size_t f = 0;
  size_t b = 0;
  while (f < warmup) ops.push_back(forwards[f++]);
  while (f < forwards.size()) {
    ops.push_back(forwards[f++]);
    ops.push_back(backwards[b++]);
  }
  while (b < backwards.size()) ops.push_back(backwards[b++]);
  return ops;
}

std::vector<Op> one_f_one_b(int p, int position, int m) {
  std::vector<Op> forwards;
  std::vector<Op> backwards;
  for (int i = 0; i < m; ++i) {
    forwards.push_back(compute(OpKind::Forward, 0, i));
    backwards.push_back(compute(OpKind::Backward, 0, i));
  }
  return warmup_steady_cooldown(forwards, backwards, static_cast<size_t>(std::min(p - 1 - position, m)));
}

// Groups of G micro-batches: all chunks in turn run a group before the next group starts; the last may be ragged.
std::vector<Op> interleaved(int p, int v, int group, int position, int m) {
  std::vector<Op> forwards;
  std::vector<Op> backwards;
  for (int start = 0; start < m; start += group) {
    const int stop = std::min(start + group, m);
    for (int chunk = 0; chunk < v; ++chunk) {
      for (int i = start; i < stop; ++i) {
        forwards.push_back(compute(OpKind::Forward, chunk, i));
        backwards.push_back(compute(OpKind::Backward, v - 1 - chunk, i));
      }
    }
  }
  const int warmup = std::min(2 * (p - 1 - position) + (v - 1) * group, m * v);
  return warmup_steady_cooldown(forwards, backwards, static_cast<size_t>(warmup));
}

std::string check_interleaved(const ScheduleOptions& o) {
  if (o.chunks < 2 || o.pipeline < 2) {
    return fmt::format(
        "--pipeline-schedule interleaved needs at least 2 virtual stages per rank and --pipeline-model-parallel-size "
        "of at "
        "least 2 (now {} and {}): give --num-virtual-stages-per-pipeline-rank 2, or use 1f1b",
        o.chunks, o.pipeline);
  }
  const int group = o.group_size == 0 ? o.pipeline : o.group_size;
  if (group < o.pipeline) {
    return fmt::format("--microbatch-group-size-per-virtual-pipeline-stage {} is less than the pipeline size: use {}",
                       group, o.pipeline);
  }
  const int ragged = o.num_micro_batches % group;
  if (ragged != 0 && ragged < o.pipeline) {
    const int down = o.num_micro_batches - ragged;
    return fmt::format(
        "{} micro-batches leave a last group of {}, fewer than the {} pipeline stages, which can deadlock: the nearest "
        "legal numbers of micro-batches are {}{}",
        o.num_micro_batches, ragged, o.pipeline, down > 0 ? fmt::format("{} and ", down) : "", down + o.pipeline);
  }
  return "";
}

std::string check_listed(const ScheduleOptions& o) {
  const auto p = static_cast<size_t>(o.pipeline);
  if (o.listed.size() != p) {
    return fmt::format(
        "--pipeline-schedule csv: the file has {} rows, one per pipeline rank, but "
        "--pipeline-model-parallel-size is {}: use {}",
        o.listed.size(), o.pipeline, o.listed.size());
  }
  if (o.listed_stages.size() != p * static_cast<size_t>(o.chunks)) {
    return fmt::format(
        "--pipeline-schedule csv: the file has {} virtual stages per rank, not {}: use "
        "--num-virtual-stages-per-pipeline-rank {}",
        o.listed_stages.size() / p, o.chunks, o.listed_stages.size() / p);
  }
  for (const auto& ops : o.listed) {
    for (const Op& op : ops) {
      if (op.micro_batch < o.num_micro_batches) continue;
      return fmt::format(
          "--pipeline-schedule csv: the file runs micro-batch {}, but the step has {} micro-batches: the "
          "file must name 0 to {}",
          op.micro_batch, o.num_micro_batches, o.num_micro_batches - 1);
    }
  }
  return "";
}

}  // namespace

const char* name_of(ScheduleKind kind) {
  constexpr std::array<const char*, 7> kNames{"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "csv"};
  return kNames[static_cast<size_t>(kind)];
}

std::optional<ScheduleKind> schedule_of(std::string_view name) {
  if (name.starts_with("csv:")) return ScheduleKind::Csv;
  for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::Interleaved,
                                  ScheduleKind::ZeroBubbleH1, ScheduleKind::ZeroBubbleH2, ScheduleKind::ZeroBubbleV}) {
    if (name == name_of(kind)) return kind;
  }
  return std::nullopt;
}

LayerMap placement_of(const ScheduleOptions& o) {
  LayerMap map;
  map.pipeline = o.pipeline;
  map.chunks = o.chunks;
  if (o.kind == ScheduleKind::ZeroBubbleV) map.placement = Placement::VShape;
  if (o.kind == ScheduleKind::Csv) {
    map.placement = Placement::Listed;
    map.listed_stages = o.listed_stages;
  }
  return map;
}

std::string check_schedule(const ScheduleOptions& o) {
  if (o.num_micro_batches < 1) {
    return "the number of micro-batches is 0: --global-batch-size must be at least --micro-batch-size x data-parallel "
           "size";
  }
  if (o.kind == ScheduleKind::Csv) return check_listed(o);
  if (o.kind == ScheduleKind::Interleaved) return check_interleaved(o);
  if (o.kind == ScheduleKind::ZeroBubbleV) {
    if (o.chunks == 2 && o.pipeline >= 2) return "";
    return fmt::format(
        "--pipeline-schedule zb-v needs exactly 2 virtual stages per rank and --pipeline-model-parallel-size of at "
        "least "
        "2 (now {} and {}): give --num-virtual-stages-per-pipeline-rank 2, or use zb-h1",
        o.chunks, o.pipeline);
  }
  if (o.chunks != 1) {
    return fmt::format(
        "--pipeline-schedule {} runs one chunk per stage, but {} virtual stages per rank are asked for: use "
        "--pipeline-schedule interleaved, or drop the virtual-stage option",
        name_of(o.kind), o.chunks);
  }
  return "";
}

std::vector<Op> compute_order(const ScheduleOptions& o, int position) {
  if (const std::string fault = check_schedule(o); !fault.empty()) throw ConfigError(fault);
  switch (o.kind) {
    case ScheduleKind::GPipe:
      return gpipe(o.num_micro_batches);
    case ScheduleKind::OneFOneB:
      return one_f_one_b(o.pipeline, position, o.num_micro_batches);
    case ScheduleKind::Interleaved:
      return interleaved(o.pipeline, o.chunks, o.group_size == 0 ? o.pipeline : o.group_size, position,
                         o.num_micro_batches);
    case ScheduleKind::ZeroBubbleH1:
      return zero_bubble_h1(o.pipeline, position, o.num_micro_batches);
    case ScheduleKind::ZeroBubbleH2:
      return zero_bubble_h2(o.pipeline, position, o.num_micro_batches);
    case ScheduleKind::ZeroBubbleV:
      return zero_bubble_v(o.pipeline, position, o.num_micro_batches);
    case ScheduleKind::Csv:
      return o.listed[static_cast<size_t>(position)];
  }
  return {};
}

}  // namespace triax::parallel

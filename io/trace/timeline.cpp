#include "io/trace/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "parallel/program_print.h"

namespace triax::io {

using parallel::Op;
using parallel::Program;

Timeline make_timeline(const Program& program, std::span<const std::vector<parallel::OpTime>> times,
                       const std::string& source, int replica) {
  Timeline timeline;
  timeline.source = source;
  timeline.schedule = program.schedule;
  timeline.program_hash = fmt::format("{:016x}", parallel::hash_of(program));
  timeline.chunks = program.chunks;
  for (int i = 0; i < program.pipeline; ++i) {
    const int rank = replica * program.pipeline + i;
    std::string stages;
    for (int c = 0; c < program.chunks; ++c) stages += fmt::format(" {}", program.layers.virtual_stage(i, c));
    timeline.ranks.push_back({rank, fmt::format("position {}, stage{}{}", i, program.chunks > 1 ? "s" : "", stages)});
    const std::vector<Op>& ops = program.positions[static_cast<size_t>(i)];
    for (size_t k = 0; k < ops.size(); ++k) {
      const Op& op = ops[k];
      const parallel::OpTime& time = times[static_cast<size_t>(i)][k];
      timeline.events.push_back({rank, op.stream, op.kind, parallel::text_of(program.layers, i, op),
                                 program.layers.virtual_stage(i, op.chunk), op.micro_batch, static_cast<int>(k),
                                 op.match, time.start_ps, time.stop_ps});
    }
  }
  return timeline;
}

const char* name_of(parallel::Stream stream) {
  constexpr std::array<const char*, 5> kNames{"compute", "tp", "dp", "pp", "host"};
  return kNames[static_cast<size_t>(stream)];
}

std::string microseconds(int64_t ps) { return fmt::format("{}.{:06}", ps / 1'000'000, ps % 1'000'000); }

int64_t end_ps(const Timeline& timeline) {
  int64_t end = 0;
  for (const TimelineEvent& event : timeline.events) end = std::max(end, event.stop_ps);
  return end;
}

}  // namespace triax::io

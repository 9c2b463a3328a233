#include "parallel/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <iterator>

#include "base/philox.h"

namespace triax::parallel {

const char* name_of(OpKind kind) {
  constexpr std::array<const char*, kNumOpKinds> kNames{
      "LOAD",   "F",        "B",           "I",    "W",   "SEND_F", "RECV_F", "SEND_B",   "RECV_B",
      "SUM_TP", "SUM_TIED", "REDUCE_GRAD", "NORM", "OPT", "R",      "GATHER", "GATHER_F", "GATHER_B"};
  return kNames[static_cast<size_t>(kind)];
}

uint64_t hash_of(const Program& program) {
  fmt::memory_buffer text;
  auto out = fmt::appender(text);
  fmt::format_to(out, "{} p{} v{} m{}\n", program.schedule, program.pipeline, program.chunks,
                 program.num_micro_batches);
  if (program.layers.placement != Placement::Looped) {
    fmt::format_to(out, "placement {} {}\n", static_cast<int>(program.layers.placement),
                   fmt::join(program.layers.listed_stages, ","));
  }
  for (const LayerRange& range : program.layers.stage_layers) fmt::format_to(out, "{}-{} ", range.begin, range.end);
  for (const auto& ops : program.positions) {
    text.push_back('\n');
    for (const Op& op : ops) {
      fmt::format_to(out, "{}{}:{}:{}:{}:{}:{} ", op.chunk, name_of(op.kind), op.micro_batch, op.bucket,
                     static_cast<int>(op.stream), op.peer_offset, op.match);
    }
  }
  if (!program.units.empty()) {
    const UnitOptions& o = program.unit_options;
    fmt::format_to(out, "\nunits {} {} {} {}", o.prefetch, name_of(o.keep), o.reductions_in_flight,
                   o.shards_gradients ? 1 : 0);
  }
  for (const PositionUnits& units : program.units) {
    text.push_back('\n');
    for (const PositionUnits::Block& b : units.blocks) {
      fmt::format_to(out, "{}{}:{} ", b.gathered ? 'g' : 'r', b.phase == GradientPhase::Input ? 'i' : 'w',
                     fmt::join(b.units, ","));
    }
    for (const ChunkWalk& walk : units.walks) {
      for (const auto* uses : {&walk.forward, &walk.backward, &walk.backward_input, &walk.backward_weight}) {
        text.push_back('/');
        for (const UnitUse& u : *uses)
          fmt::format_to(out, "{}{}{}", name_of(u.pass), u.unit, u.reads_weights ? "" : "-");
      }
    }
  }
  return stream_of(std::string_view(text.data(), text.size()));
}

}  // namespace triax::parallel

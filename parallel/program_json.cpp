#include "parallel/program_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "parallel/cost_table.h"
#include "parallel/dependencies.h"
#include "parallel/memory_effects.h"
#include "parallel/program_print.h"

namespace triax::parallel {
namespace {

const char* effect_name(Effect effect) {
  constexpr std::array<const char*, 3> kNames{"alloc", "use", "free"};
  return kNames[static_cast<size_t>(effect)];
}

const char* stream_name(Stream stream) {
  constexpr std::array<const char*, 5> kNames{"compute", "tp", "dp", "pp", "host"};
  return kNames[static_cast<size_t>(stream)];
}

std::string stages_of(const Program& program) {
  std::string text;
  for (int stage = 0; stage < program.layers.num_virtual_stages(); ++stage) {
    const LayerRange& range = program.layers.stage_layers[static_cast<size_t>(stage)];
    text +=
        fmt::format("{}{{\"stage\":{},\"position\":{},\"chunk\":{},\"layers\":[{},{}]}}", stage == 0 ? "" : ",", stage,
                    program.layers.position_of(stage), program.layers.chunk_of(stage), range.begin, range.end);
  }
  return text;
}

std::string op_json(const Program& program, const MemoryRules& rules, const Dependencies& dependencies, OpRef ref) {
  const Op& op = program.positions[static_cast<size_t>(ref.position)][static_cast<size_t>(ref.index)];
  std::string text = fmt::format("{{\"name\":\"{}\",\"kind\":\"{}\",\"chunk\":{},\"micro_batch\":{},\"stream\":\"{}\"",
                                 text_of(program.layers, ref.position, op), name_of(op.kind), op.chunk, op.micro_batch,
                                 stream_name(op.stream));
  if (op.match >= 0) {
    text += fmt::format(",\"peer\":{},\"match\":{}", (ref.position + op.peer_offset) % program.pipeline, op.match);
  }
  if (op.bucket >= 0) text += fmt::format(",\"bucket\":{}", op.bucket);
  text += fmt::format(",\"cost_key\":\"{}\",\"depends_on\":[", text_of(cost_key(program, ref.position, op)));
  const char* separator = "";
  for (const OpRef& before : dependencies.of(ref)) {
    text += fmt::format("{}[{},{}]", separator, before.position, before.index);
    separator = ",";
  }
  text += "],\"memory\":[";
  separator = "";
  for (const MemoryEffect& e : rules.effects(ref.position, op)) {
    text += fmt::format("{}{{\"effect\":\"{}\",\"tensor\":\"{}\",\"stage\":{},\"micro_batch\":{}}}", separator,
                        effect_name(e.effect), name_of(e.tensor), program.layers.virtual_stage(ref.position, e.chunk),
                        e.micro_batch);
    separator = ",";
  }
  return text + "]}";
}

std::string inside_json(const std::vector<UnitOp>& list) {
  std::string text;
  for (const UnitOp& op : list) {
    text += text.empty() ? "" : ",";
    if (op.kind == UnitOpKind::Run) {
      text += fmt::format("{{\"kind\":\"RUN\",\"pass\":\"{}\",\"unit\":{}}}", name_of(op.use.pass), op.use.unit);
    } else {
      text += fmt::format("{{\"kind\":\"{}\",\"block\":{}}}", name_of(op.kind), op.block);
    }
  }
  return text;
}

std::string blocks_json(const Program& program) {
  std::string text;
  for (size_t i = 0; i < program.units.size(); ++i) {
    text += i == 0 ? "[" : ",[";
    const char* separator = "\n";
    for (const PositionUnits::Block& block : program.units[i].blocks) {
      text +=
          fmt::format("{}{{\"units\":[{}],\"gathered\":{}}}", separator, fmt::join(block.units, ","), block.gathered);
      separator = ",\n";
    }
    text += "]";
  }
  return text;
}

}  // namespace

std::string json_of(const Program& program, Inside inside) {
  const MemoryRules rules(program);
  const Dependencies dependencies(program);
  const bool shows_inside = inside == Inside::Show && !program.units.empty();
  std::string text = fmt::format(
      "{{\"schema\":\"triax-program\",\"version\":1,\"program_hash\":\"{:016x}\",\"schedule\":\"{}\",\"pipeline\":{},"
      "\"chunks\":{},\"num_microbatches\":{},\"stages\":[{}],\"positions\":[",
      hash_of(program), program.schedule, program.pipeline, program.chunks, program.num_micro_batches,
      stages_of(program));
  for (int i = 0; i < program.pipeline; ++i) {
    text += i == 0 ? "[" : ",[";
    const auto count = static_cast<int>(program.positions[static_cast<size_t>(i)].size());
    const auto lists = shows_inside ? unit_ops(program, i) : std::vector<std::vector<UnitOp>>();
    for (int k = 0; k < count; ++k) {
      std::string op = op_json(program, rules, dependencies, {i, k});
      if (shows_inside) op.insert(op.size() - 1, ",\"inside\":[" + inside_json(lists[static_cast<size_t>(k)]) + "]");
      text += (k == 0 ? "\n" : ",\n") + op;
    }
    text += "]";
  }
  return text + "]" + (shows_inside ? ",\"blocks\":[" + blocks_json(program) + "]" : "") + "}\n";
}

}  // namespace triax::parallel

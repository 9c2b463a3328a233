#include "parallel/program_print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace triax::parallel {

std::string text_of(const LayerMap& layers, int position, const Op& op) {
  const char* name = name_of(op.kind);
  switch (op.kind) {
    case OpKind::GradientNorm:
    case OpKind::OptimizerStep:
      return name;
    case OpKind::SumTensorPartial:
    case OpKind::SumTied:
      return fmt::format("{}{}", layers.virtual_stage(position, op.chunk), name);
    case OpKind::ReduceGradients:
    case OpKind::GatherParameters:
      return fmt::format("{}{}.{}", layers.virtual_stage(position, op.chunk), name, op.bucket);
    default:
      return fmt::format("{}{}{}", layers.virtual_stage(position, op.chunk), name, op.micro_batch);
  }
}

std::string place_of(const Program& program, int position, int index) {
  const Op& op = program.positions[static_cast<size_t>(position)][static_cast<size_t>(index)];
  return fmt::format("position {}, op {} ({})", position, index, text_of(program.layers, position, op));
}

std::string list_of(const Program& program, ShowOps which) {
  std::string text;
  for (int i = 0; i < static_cast<int>(program.positions.size()); ++i) {
    text += fmt::format("Rank {}:", i);
    for (const Op& op : program.positions[static_cast<size_t>(i)]) {
      if (which == ShowOps::Compute && !is_compute(op.kind)) continue;
      text += fmt::format(" {}", text_of(program.layers, i, op));
    }
    text += '\n';
  }
  return text;
}

std::string inside_of(const Program& program) {
  std::string text;
  for (int i = 0; i < static_cast<int>(program.units.size()); ++i) {
    text += fmt::format("Rank {}:\n", i);
    const std::vector<PositionUnits::Block>& blocks = program.units[static_cast<size_t>(i)].blocks;
    for (size_t b = 0; b < blocks.size(); ++b) {
      text += fmt::format("  block {}: units {}, {}\n", b, fmt::join(blocks[b].units, " "),
                          blocks[b].gathered ? "gathered" : "resident");
    }
    const auto lists = unit_ops(program, i);
    for (size_t k = 0; k < lists.size(); ++k) {
      const char* separator = ": ";
      if (lists[k].empty()) continue;
      text += "  " + text_of(program.layers, i, program.positions[static_cast<size_t>(i)][k]);
      for (const UnitOp& op : lists[k]) text += std::exchange(separator, ", ") + text_of(op);
      text += '\n';
    }
  }
  return text;
}

}  // namespace triax::parallel

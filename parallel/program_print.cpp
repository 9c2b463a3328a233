#include "parallel/program_print.h"

#include <fmt/format.h>

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

}  // namespace triax::parallel

// The members of a communicator call the same collectives in the same order.
#include <fmt/format.h>

#include <algorithm>

#include "parallel/checker_parts.h"
#include "parallel/program_print.h"

namespace triax::parallel {

SpanningGroup spanning_group(const Program& program, int, const Op& op) {
  const LayerMap& layers = program.layers;
  if (op.kind == OpKind::GradientNorm) return SpanningGroup::World;
  const bool shared = layers.position_of(0) != layers.position_of(layers.num_virtual_stages() - 1);
  return op.kind == OpKind::SumTied && shared ? SpanningGroup::Embedding : SpanningGroup::None;
}

bool is_member(const Program& program, int position, SpanningGroup group) {
  const LayerMap& layers = program.layers;
  switch (group) {
    case SpanningGroup::World:
      return true;
    case SpanningGroup::Embedding:
      return position == layers.position_of(0) || position == layers.position_of(layers.num_virtual_stages() - 1);
    case SpanningGroup::None:
      return false;
  }
  return false;
}

const char* name_of(SpanningGroup group) {
  switch (group) {
    case SpanningGroup::Embedding:
      return "embedding";
    case SpanningGroup::World:
      return "world";
    case SpanningGroup::None:
      return "none";
  }
  return "";
}

namespace {

// Indices of the ops on the group, in order.
std::vector<int> calls_of(const Program& program, int position, SpanningGroup group) {
  std::vector<int> calls;
  const auto& ops = program.positions[static_cast<size_t>(position)];
  for (int index = 0; index < static_cast<int>(ops.size()); ++index) {
    if (spanning_group(program, position, ops[static_cast<size_t>(index)]) == group) calls.push_back(index);
  }
  return calls;
}

void compare(const Program& program, SpanningGroup group, int first, int other, Faults& faults) {
  const std::vector<int> expected = calls_of(program, first, group);
  const std::vector<int> calls = calls_of(program, other, group);
  const auto op = [&](int position, int index) {
    return program.positions[static_cast<size_t>(position)][static_cast<size_t>(index)];
  };
  for (size_t k = 0; k < std::max(expected.size(), calls.size()); ++k) {
    const bool have = k < calls.size();
    const bool want = k < expected.size();
    if (have && want && op(first, expected[k]).kind == op(other, calls[k]).kind) continue;
    const auto side = [&](int position, bool there, const std::vector<int>& list) {
      return there ? place_of(program, position, list[k]) : fmt::format("position {}: nothing", position);
    };
    faults.push_back(
        fmt::format("wrong collective order on the {} group: call {} is {} on one member and {} on another",
                    name_of(group), k, side(first, want, expected), side(other, have, calls)));
    return;
  }
}

}  // namespace

void check_collectives(const Program& program, Faults& faults) {
  for (const SpanningGroup group : {SpanningGroup::Embedding, SpanningGroup::World}) {
    int first = -1;
    for (int i = 0; i < program.pipeline; ++i) {
      if (!is_member(program, i, group)) {
        for (const int index : calls_of(program, i, group)) {
          faults.push_back(fmt::format("{}: the position is no member of the {} group", place_of(program, i, index),
                                       name_of(group)));
        }
        continue;
      }
      if (first >= 0) compare(program, group, first, i, faults);
      if (first < 0) first = i;
    }
  }
}

}  // namespace triax::parallel

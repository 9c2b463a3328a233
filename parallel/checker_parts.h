// The parts of check(). Each appends its faults; all but check_shape take a program whose shape is right.
#pragma once

#include <string>
#include <vector>

#include "parallel/program.h"

namespace triax::parallel {

using Faults = std::vector<std::string>;

void check_shape(const Program& program, Faults& faults);
void check_counts(const Program& program, Faults& faults);
void check_lifetimes(const Program& program, Faults& faults);
void check_messages(const Program& program, Faults& faults);
void check_collectives(const Program& program, Faults& faults);
/// Of every position; nothing where no weights or gradients are sharded inside ops.
void check_units(const Program& program, Faults& faults);
/// Names the positions that wait for each other. Only meaningful when messages and collectives are matched.
void check_progress(const Program& program, Faults& faults);

/// Communicators whose members are several pipeline positions. (Those over tp or dp have one position: all members run
/// the same list.)
enum class SpanningGroup { None, Embedding, World };
SpanningGroup spanning_group(const Program& program, int position, const Op& op);
/// Whether the position belongs to the group.
bool is_member(const Program& program, int position, SpanningGroup group);
const char* name_of(SpanningGroup group);

}  // namespace triax::parallel

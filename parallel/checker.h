// Proves that a program can run: shape, counts, lifetimes, messages, collective order, progress. The trainer refuses
// what it rejects.
#pragma once

#include <string>
#include <vector>

#include "parallel/program.h"

namespace triax::parallel {

/// Every fault found, each naming pipeline position and op; empty when the program can run. At most 20 are listed, the
/// last line then says how many more there are.
/// - shape: one list per position; chunks, micro-batches, virtual stages and layers in range
/// - counts: each micro-batch of each chunk has one F and one B, or one I and one W (training), or one F (evaluation);
///   one norm, then one optimizer step, at the end; each bucket reduced once, after the last gradient of its chunk
/// - lifetimes: no tensor is used before it is made, made twice, used or freed after it was freed, or left over
/// - messages: each send has one receive on the position it names, of the same kind, micro-batch and virtual stages
/// - collectives: the members of a communicator that spans positions call the same ones in the same order
/// - units: check_units() of what happens inside the ops of every position
/// - progress: with ops in order, sends that never block and receives that do, every position reaches its end
std::vector<std::string> check(const Program& program);

/// Faults of one position's unit ops, lists[op of the position], as unit_ops() makes them; each names position, op and
/// the place inside of it.
/// - runs: each op runs the units of its chunk's walk, in order
/// - weights: of a gathered block they are there whenever a unit reads them; gathered once, released once, none left at
///   the end
/// - gradients: a unit adds only to a collected bucket; each bucket is collected, reduced and finished in turn, and all
///   are finished before an op that reads the step's gradients
std::vector<std::string> check_units(const Program& program, int position,
                                     const std::vector<std::vector<UnitOp>>& lists);

}  // namespace triax::parallel

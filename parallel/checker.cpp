#include "parallel/checker.h"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/checker_parts.h"
#include "parallel/program_print.h"

namespace triax::parallel {
namespace {

constexpr size_t kMostFaults = 20;

std::string raw_place(int position, int index, const Op& op) {
  return fmt::format("position {}, op {} ({} of chunk {}, micro-batch {})", position, index, name_of(op.kind), op.chunk,
                     op.micro_batch);
}

bool has_micro_batch(OpKind kind) {
  return is_compute(kind) || is_send(kind) || is_receive(kind) || is_message_gather(kind) || kind == OpKind::LoadBatch;
}

void check_stages(const Program& program, Faults& faults) {
  const LayerMap& layers = program.layers;
  const int stages = program.pipeline * program.chunks;
  if (layers.pipeline != program.pipeline || layers.chunks != program.chunks) {
    faults.push_back(fmt::format("the layer map is for {} positions of {} chunks, the program for {} of {}",
                                 layers.pipeline, layers.chunks, program.pipeline, program.chunks));
    return;
  }
  if (static_cast<int>(layers.stage_layers.size()) != stages) {
    faults.push_back(fmt::format("the layer map lists {} virtual stages, not {}", layers.stage_layers.size(), stages));
  }
  if (layers.placement == Placement::Listed && static_cast<int>(layers.listed_stages.size()) != stages) {
    faults.push_back(fmt::format("the placement lists {} virtual stages, not {}", layers.listed_stages.size(), stages));
    return;
  }
  if (layers.placement == Placement::VShape && program.chunks != 2) {
    faults.push_back(fmt::format("the V placement needs 2 chunks, not {}", program.chunks));
    return;
  }
  std::vector<int> held(static_cast<size_t>(stages), 0);
  for (int i = 0; i < program.pipeline; ++i) {
    for (int c = 0; c < program.chunks; ++c) {
      const int stage = layers.virtual_stage(i, c);
      if (stage < 0 || stage >= stages || held[static_cast<size_t>(stage)]++ > 0) {
        faults.push_back(
            fmt::format("position {}: chunk {} is virtual stage {}, which is out of range or held twice", i, c, stage));
      }
    }
  }
}

/// Tables of units that name what is there.
void check_unit_tables(const Program& program, Faults& faults) {
  if (program.units.empty()) return;
  if (static_cast<int>(program.units.size()) != program.pipeline) {
    faults.push_back(
        fmt::format("the program has units of {} positions, not {}", program.units.size(), program.pipeline));
    return;
  }
  if (program.unit_options.prefetch < 0 || program.unit_options.reductions_in_flight < 0)
    faults.push_back("prefetch and reductions in flight of the units must be at least 0");
  for (size_t i = 0; i < program.units.size(); ++i) {
    if (static_cast<int>(program.units[i].walks.size()) != program.chunks) {
      faults.push_back(
          fmt::format("position {}: walks of {} chunks, not {}", i, program.units[i].walks.size(), program.chunks));
    }
  }
}

}  // namespace

void check_shape(const Program& program, Faults& faults) {
  if (program.pipeline < 1 || program.chunks < 1 || program.num_micro_batches < 1 ||
      static_cast<int>(program.positions.size()) != program.pipeline) {
    faults.push_back(fmt::format("the program has {} lists of ops for {} positions, {} chunks, {} micro-batches",
                                 program.positions.size(), program.pipeline, program.chunks,
                                 program.num_micro_batches));
    return;
  }
  check_stages(program, faults);
  check_unit_tables(program, faults);
  for (int i = 0; i < program.pipeline; ++i) {
    int index = 0;
    for (const Op& op : program.positions[static_cast<size_t>(i)]) {
      const bool legal =
          op.chunk >= 0 && op.chunk < program.chunks &&
          (!has_micro_batch(op.kind) || (op.micro_batch >= 0 && op.micro_batch < program.num_micro_batches)) &&
          op.peer_offset >= 0 && op.peer_offset < program.pipeline;
      if (!legal) {
        faults.push_back(raw_place(i, index, op) + fmt::format(": chunk, micro-batch or peer offset is out of range "
                                                               "({} chunks, {} micro-batches, {} positions)",
                                                               program.chunks, program.num_micro_batches,
                                                               program.pipeline));
      }
      ++index;
    }
  }
}

std::vector<std::string> check(const Program& program) {
  Faults faults;
  check_shape(program, faults);
  if (faults.empty()) {
    check_counts(program, faults);
    check_lifetimes(program, faults);
    const size_t before = faults.size();
    check_messages(program, faults);
    check_collectives(program, faults);
    check_units(program, faults);
    if (faults.size() == before) check_progress(program, faults);
  }
  if (faults.size() > kMostFaults) {
    const size_t more = faults.size() - kMostFaults;
    faults.resize(kMostFaults);
    faults.push_back(fmt::format("and {} more", more));
  }
  return faults;
}

}  // namespace triax::parallel

// The result of `triax mem` as table, JSON and CSV.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/mem_request.h"

namespace triax::apps {

extern const char* const kMemUsage;
extern const char* const kMemDescription;

struct MemReport {
  const MemRequest& request;
  model::StateWidths widths = {};
  int64_t parameters = 0;                       ///< of the whole model
  parallel::LayerMap layers = {};               ///< empty with --num-parameters
  std::vector<model::StageMemory> stages = {};  ///< by formula; one element with --num-parameters
  std::vector<plan::ExactStage> exact = {};     ///< positions that were run
  int64_t exact_micro_batches = 0;
  parallel::Program program = {};             ///< the trainer's; no positions where it does not take the run
  std::string exact_note = {};                ///< which stages, or why none
  std::optional<plan::DeviceRoom> room = {};  ///< what --hw's device holds
};

std::string table_text(const MemReport& report);
std::string json_text(const MemReport& report);
/// Integer bytes, one line per stage and engine.
std::string csv_text(const MemReport& report);

}  // namespace triax::apps

// What `triax mem` is asked: a model (or a bare number of parameters), a layout, a step. No ranks are needed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/entry_makers.h"
#include "apps/virtual_ranks.h"
#include "plan/memory_report.h"

namespace triax::apps {

struct MemRequest {
  io::ParsedOptions parsed;
  RankWords ranks;
  int64_t num_parameters = 0;  ///< 0: not given
  bool grads_in_bf16 = false;
  plan::MemoryTerms terms;
  std::string exact = "auto";
  Format format = Format::Table;
  bool describe = false;
  std::string out;

  /// Resolved (with num_parameters: only layout, precision and optimizer mean something).
  io::RunOptions options;
  std::vector<std::string> notes;  ///< values that were assumed
};

/// Options of `triax mem` beside the table's. The entries write into `request`, which must outlive them.
std::vector<io::OptionEntry> mem_entries(MemRequest& request);

/// Parses and resolves; request.parsed.help is set where only help was asked. Throws ConfigError.
void read_mem_request(const std::vector<std::string>& args, MemRequest& request);

/// The request's options as the trainer takes them, ZeRO included. Returns why it refuses them, empty when it does not.
std::string trainer_options(const MemRequest& request, io::RunOptions& options);

}  // namespace triax::apps

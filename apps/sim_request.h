// What `triax sim` is asked: a run as `triax train` takes it, a machine, what is different about it, forms of the
// result.
#pragma once

#include <string>
#include <vector>

#include "apps/virtual_ranks.h"
#include "bench/hardware.h"
#include "plan/prediction.h"
#include "plan/what_if.h"

namespace triax::apps {

struct SimRequest {
  io::ParsedOptions parsed;
  RankWords ranks;
  plan::WhatIf what_if;
  double train_tokens = 0;
  double jitter = 0;
  std::vector<std::string> stragglers;
  std::string exact = "auto";
  int64_t replica = 0;
  Format format = Format::Table;
  bool describe = false;
  std::string out, svg, chrome;  ///< files; empty: none, stdout
  std::string verify;            ///< directory of a run; empty: none
  std::string hta, chakra;       ///< directories; empty: none

  // Read from these:
  io::RunOptions options;  ///< resolved
  std::vector<std::string> notes;
  bench::Hardware hardware;  ///< scaled by what_if
  plan::PredictionOptions prediction;
};

/// Options of `triax sim` beside the table's. The entries write into `request`, which must outlive them.
std::vector<io::OptionEntry> sim_entries(SimRequest& request);

/// Parses and resolves; parsed.help, parsed.list_hardware or parsed.list_models is set where only that was asked.
/// Throws ConfigError.
void read_sim_request(const std::vector<std::string>& args, SimRequest& request);

}  // namespace triax::apps

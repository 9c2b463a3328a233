// `triax train --rehearse`: what the job will do, without its ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/training_run.h"

namespace triax::apps {

struct RehearseWords {
  bool rehearse = false;
  int64_t rank = -1;  ///< to execute; -1: the first of the last stage
  int64_t world = 0;  ///< 0: not given
  int64_t ranks_per_node = 8;
};

/// Options of `triax train` about rehearsing; they write into `words`, which must outlive them.
std::vector<io::OptionEntry> rehearse_entries(RehearseWords& words);

/// Whether the words ask for a rehearsal, which starts no MPI.
bool asks_for_rehearsal(const std::vector<std::string>& args);

/// Checks the options as the run would, prints, and returns 0; 3 when it does not fit into --hw's memory; 4 when the
/// executed rank does not do what was announced. `request` holds parsed options.
int rehearse_command(const RehearseWords& words, train::RunRequest& request);

}  // namespace triax::apps

// Faults of a save on purpose, for tests: --inject kill-save:POINT[:RANK[:N]], slow-save:SECONDS, disk-full:BYTES.
#pragma once

#include <string>

#include "io/checkpoint/shard.h"

namespace triax::train {

/// Whether a part of an --inject text is about saving.
bool is_save_fault(const std::string& part);

/// kill-save: SIGKILL to `RANK` (default 0) at point 1 to 12 (io::SavePoint) of its Nth save (default 1). slow-save:
/// each writer sleeps at half of its shard. disk-full: no file of any rank may become larger than BYTES from now on.
/// Throws ConfigError for another form. Empty function: no such fault.
io::SaveHook make_save_fault(const std::string& inject, int rank);

}  // namespace triax::train

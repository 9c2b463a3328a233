// Long work on some ranks while the others wait: a heartbeat keeps everyone's deadline from passing as long as the work
// gets on, and a failure on one rank ends all of them with its words.
#pragma once

#include <functional>

#include "comm/communicator.h"
#include "io/run_options.h"

namespace triax::train {

/// --distributed-timeout-minutes.
inline double deadline_s(const io::RunOptions& options) { return options.control.distributed_timeout_min * 60; }

enum class TakePart { No, Yes };

/// Runs `task` on a thread of the ranks that take part; returns when it is done on all. All ranks meet every half
/// second (8 bytes). When it threw somewhere, every rank throws: the lowest failing rank's words; ConfigError stays
/// ConfigError, all else becomes RunTimeError on that rank and ToldError on the others. A rank whose task has used no
/// CPU time for `patience_s` throws alone (train/watched_task.h). The task must not use communicators.
void run_collectively(comm::Communicator& world, TakePart take_part, double patience_s,
                      const std::function<void()>& task);

}  // namespace triax::train

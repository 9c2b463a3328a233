// Long work on some ranks while the others wait: a heartbeat keeps everyone's deadline from passing, and a failure on
// one rank ends all of them with its words.
#pragma once

#include <functional>

#include "comm/communicator.h"

namespace triax::train {

enum class TakePart { No, Yes };

/// Runs `task` on a thread of the ranks that take part; returns when it is done on all. All ranks meet every half
/// second (8 bytes). When it threw somewhere, every rank throws: the lowest failing rank's words; ConfigError stays
/// ConfigError, all else becomes RunTimeError. The task must not use communicators.
void run_collectively(comm::Communicator& world, TakePart take_part, const std::function<void()>& task);

}  // namespace triax::train

// A small parent for each rank. It outlives the rank by a moment: it records how the rank ended, says so while the
// launcher still listens, and ends the job with the right exit code.
#pragma once

#include <optional>

#include "base/flight_recorder.h"

namespace triax::apps {

/// Forks; to be called before MPI starts and before there are threads. In the child, which becomes the rank, returns
/// nothing. In the parent, returns the exit code of the process once the rank has ended:
/// - the rank's own, when it left on purpose (FlightHeader::leaving);
/// - else 5, after a report that names the rank at fault (io/trace/blame.h), once the job has been told to abort.
/// Meanwhile it passes SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 on, and ends a rank that has been stopped
/// (SIGSTOP), or has stood in a call of MPI without a deadline, for longer than the deadline of every wait. The child
/// is killed when the parent dies.
std::optional<int> supervise(FlightRecorder& flight);

/// For the rank, before it leaves: continues a parent that was stopped by itself (SIGSTOP to the wrong one of the two
/// processes); the launcher waits for the parent and would hang after a complete run.
void wake_supervisor();

/// Whether a debugger holds this process: then there should be one process, not two.
bool is_traced();

}  // namespace triax::apps

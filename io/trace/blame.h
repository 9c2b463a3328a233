// Who ended a run: from the flight recorders of its ranks, the rank at fault and the reason.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/trace/flight.h"

namespace triax::io {

enum class Verdict {
  Completed,    ///< all ranks reached the end
  Stopped,      ///< left on request, with a checkpoint
  Interrupted,  ///< most ranks were ended by SIGINT, SIGTERM or SIGHUP: somebody wanted that
  Running,      ///< nothing has failed
  Died,         ///< killed by a signal, or left early
  Failed,       ///< an error of its own
  Halted,       ///< stopped by a signal and not continued
  Stuck,        ///< the others waited for it in vain, while it waited for nobody
  Deadlock,     ///< all wait for each other; the rank named is the one that came least far
  KilledAll     ///< no rank's end was recorded: the job was killed from outside; the rank named is a guess
};
const char* name_of(Verdict verdict);

struct Blame {
  Verdict verdict = Verdict::Running;
  int rank = -1;          ///< at fault; -1: none
  std::string reason;     ///< "was killed by signal 9 (SIGKILL)"
  std::vector<int> also;  ///< other ranks that ended by themselves, later
  double at_s = 0;        ///< when it happened, since 1970; 0: unknown
};

/// Earliest first: a death, an own error, a halt, then who waits for nobody. Failures by waiting for others, and those
/// that others told of, are never at fault while there is another. `ranks` by rank; some may be missing.
Blame find_blame(const std::vector<FlightRank>& ranks);

/// "SIGKILL"; "signal 50" for one without a name.
std::string signal_name(int signal);
/// The report: one line about the rank at fault, where it was, then one line a rank: last op completed, what it does.
/// At most `most` ranks, the one at fault first.
std::string blame_text(const std::vector<FlightRank>& ranks, const Blame& blame, size_t most = 32);
std::string blame_json(const std::vector<FlightRank>& ranks, const Blame& blame);

/// The first caller of all ranks and their parents writes RUN_DIR/flight/failure.json and gets the report's text; the
/// others, and anyone for a run without fault, get "". Never throws: it runs while the job ends.
std::string claim_failure_report(const std::string& run_directory) noexcept;
/// How long that may take, with all that is said around it, before the job ends without: the files may be why it ends.
inline double report_patience_s(int world) { return 10 + 0.05 * world; }

}  // namespace triax::io

// What a process still says and does when it, or the whole job, comes to its end.
#pragma once

#include <string_view>

namespace triax {

/// To stderr, at once. Never throws and reports nothing: a full disk or a closed pipe must not keep a job from ending
/// with its own exit code.
void say_last_words(std::string_view text) noexcept;

/// Rank that the launcher has given this process (PMI_RANK, PMIX_RANK, SLURM_PROCID), known before MPI has started; -1
/// without a launcher.
int launched_rank();

/// PMI's wire command, as MPI_Abort sends it: the whole job ends with `code`. Works while MPI itself is blocked, and
/// from the parent of a rank, whose connection it then is. Nothing without a process manager that handed down a
/// connection.
void abort_all_ranks(int code);

/// From a thread of its own: should this process still be there in `seconds`, the whole job ends with `code`. For one
/// that is about to report about files that may not answer.
void end_by_force_after(double seconds, int code);

}  // namespace triax

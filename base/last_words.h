// What a process still says and does when it, or the whole job, comes to its end.
#pragma once

#include <string_view>

namespace triax {

/// To stderr, at once; bytes that would steer a terminal, or are no text in UTF-8, as \xNN. Never throws and reports
/// nothing: a full disk or a closed pipe must not keep a job from ending with its own exit code.
void say_last_words(std::string_view text) noexcept;

/// Returns when the launcher has probably read what was said: stderr, if a pipe, is empty (at most 2 s are spent on
/// it), and 0.2 s more for what it has yet to pass on. Hydra drops what it has not read of the last words when it ends
/// a job.
void await_reader() noexcept;

/// Rank that the launcher has given this process (PMI_RANK, PMIX_RANK, SLURM_PROCID), known before MPI has started; -1
/// without a launcher.
int launched_rank();

/// PMI's wire command, as MPI_Abort sends it, after await_reader(): the whole job ends with `code`. Works while MPI
/// itself is blocked, and from the parent of a rank, whose connection it then is. Nothing without a process manager
/// that handed down a connection.
void abort_all_ranks(int code);

/// From a thread of its own: should this process still be there in `seconds`, the whole job ends with `code`. For one
/// that is about to report about files that may not answer.
void end_by_force_after(double seconds, int code);

}  // namespace triax

// Timelines as Chrome trace JSON, which Perfetto and chrome://tracing show and `triax trace` reads back.
#pragma once

#include <string>
#include <string_view>

#include "io/trace/timeline.h"

namespace triax::io {

/// {"traceEvents": [...], "displayTimeUnit": "ms", "otherData": {...}}. pid = rank, tid = stream; one complete event
/// (X) per op with its kind, virtual stage, micro-batch and place in the program; a flow from each send to its receive;
/// a counter of chunk activations in flight per rank. Times are microseconds with six decimals, that is exact
/// picoseconds. Events of one thread never overlap in part: ops of a stream run one after the other.
std::string chrome_trace(const Timeline& timeline);

/// Reads what chrome_trace() wrote. Throws RunTimeError naming `name` (the file) and what is wrong with it.
Timeline parse_chrome_trace(std::string_view text, const std::string& name);

/// Events of one rank and stream that overlap without one holding the other, as "rank 1, pp: 1RECV_F0 ... 1RECV_F1";
/// empty for a valid timeline.
std::vector<std::string> nesting_faults(const Timeline& timeline);

}  // namespace triax::io

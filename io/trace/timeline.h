// When each op of a step ran, on which rank and stream: of a real step or of a simulated one, in one form.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/program.h"
#include "parallel/simulator.h"

namespace triax::io {

struct TimelineEvent {
  int rank = 0;  ///< Lane: replica * p + pipeline position
  parallel::Stream stream = parallel::Stream::Compute;
  parallel::OpKind kind = parallel::OpKind::Forward;
  std::string name;  ///< "2F3", as parallel::text_of
  int stage = 0;     ///< virtual stage
  int micro_batch = 0;
  int op = 0;          ///< index in the program of its position
  int64_t match = -1;  ///< messages
  int64_t start_ps = 0, stop_ps = 0;
};

struct TimelineRank {
  int rank = 0;
  std::string name;  ///< "position 1, stages 1 5"
};

struct Timeline {
  std::string source;  ///< "simulated" or "measured"
  std::string schedule;
  std::string program_hash;  ///< 16 hexadecimal digits
  int chunks = 1;
  std::vector<TimelineRank> ranks;
  std::vector<TimelineEvent> events;  ///< by rank, then in program order
};

/// Ranks of one replica from the op times of each position; `times[i][k]` belongs to op k of position i.
Timeline make_timeline(const parallel::Program& program, std::span<const std::vector<parallel::OpTime>> times,
                       const std::string& source, int replica = 0);

/// "compute", "tp", "dp", "pp", "host".
const char* name_of(parallel::Stream stream);

/// "1.000002": microseconds with every picosecond.
std::string microseconds(int64_t ps);

/// End of the last event.
int64_t end_ps(const Timeline& timeline);

}  // namespace triax::io

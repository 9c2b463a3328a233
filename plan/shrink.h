// A run with the widths of its model and its sequence cut down, so that one rank of it computes on a laptop: the same
// program, and payloads from which those of the full widths follow exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "io/run_options.h"
#include "train/rehearsed_step.h"

namespace triax::plan {

/// hidden, ffn, head channels and vocabulary are divided by `width`, sequence and positions by `sequence`.
struct Divisors {
  int64_t width = 1, sequence = 1;
  bool operator==(const Divisors&) const = default;
};

/// The run at `width_times` / divisors.width of its widths and `sequence_times` / divisors.sequence of its length.
/// Thresholds in parameters follow the widths squared.
io::RunOptions shrink(const io::RunOptions& options, const Divisors& divisors, int64_t width_times,
                      int64_t sequence_times);

/// A step without arithmetic.
using Simulate = std::function<train::RehearsedStep(const io::RunOptions&)>;

struct Shrinking {
  Divisors divisors;
  int64_t padding = 0;  ///< elements in the flat arrays at one, two and three times the least width
};
/// Divisors that leave heads, layers and groups as they are: the largest without padding whose step is cheap to
/// execute; where there is none, the largest with padding. {1, 1} where nothing divides.
Shrinking find_shrinking(const io::RunOptions& options, const Simulate& simulate);

/// shrink() with the threshold of resident tensors (ZeRO 3) at which the program is `program`.
io::RunOptions shrink_to_program(const io::RunOptions& options, const Divisors& divisors, int64_t width_times,
                                 int64_t sequence_times, uint64_t program, const Simulate& simulate);

/// Payload and calls of every (group, operation) of the full widths, from steps at small ones. A payload is
/// c0 + c1 s + c2 w + c3 sw + c4 w^2 in the widths w and the sequence s: matrices w^2, vectors w, activations sw,
/// statistics of tokens s, counters 1. `executed` is the step at w = s = 1; four simulated ones fix the rest.
struct Scaled {
  train::StepCommunication::Entries entries;  ///< calls and payload_bytes alone; those called alike at all widths
  std::string fault;                          ///< why there are none
};
Scaled scale_traffic(const io::RunOptions& options, const Divisors& divisors, const train::RehearsedStep& executed,
                     const Simulate& simulate);

}  // namespace triax::plan

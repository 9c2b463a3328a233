// What must have ended before an op may start, beside the order of its own stream: the ops that made its tensors, the
// send of its message, the backwards behind a gradient sum.
#pragma once

#include <span>
#include <vector>

#include "parallel/program.h"

namespace triax::parallel {

struct OpRef {
  int position = 0;
  int index = 0;  ///< in Program::positions[position]
  bool operator==(const OpRef&) const = default;
};

/// Dependencies of every op of one program, computed once. Of a tensor never made, or a message never sent, there is no
/// entry: check() reports those.
class Dependencies {
 public:
  explicit Dependencies(const Program& program);
  std::span<const OpRef> of(OpRef op) const;

 private:
  std::vector<size_t> position_start_;  ///< first op of a position in starts_
  std::vector<size_t> starts_;          ///< per op: first of its refs_; one more at the end
  std::vector<OpRef> refs_;
};

}  // namespace triax::parallel

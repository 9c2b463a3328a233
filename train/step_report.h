// What every rank tells the others after a step, and what is computed from it: the same on all ranks.
#pragma once

#include <span>
#include <vector>

#include "base/memory.h"
#include "comm/communicator.h"
#include "parallel/layout.h"

namespace triax::train {

/// What a rank wants to happen after the step; what one wants, all do.
struct Wishes {
  double stop = 0;  ///< not 0: end the run; a signal number, or 1000 when the time is over
  double save = 0;  ///< not 0: save
};

/// One rank's numbers of one step; only doubles, so that it travels as a tensor.
struct RankReport {
  double loss_sum = 0;        ///< sum over tokens; 0 where the head is not, and on tp ranks but the first
  double tokens = 0;          ///< counted tokens, likewise
  double receive_wait_s = 0;  ///< standing in pipeline receives
  double compute_end_s = 0;   ///< from the start of the step to the end of the last forward or backward
  double exposed_s = 0;       ///< standing in collectives and receives, all groups
  double own_s = 0;           ///< the step's ops without exposed_s
  double data_wait_s = 0;
  double sent_bytes = 0;  ///< this step
  double live_bytes = 0, peak_bytes = 0;
  Wishes wishes = {};
};

/// All-gathers reports over `world`: 8 bytes x fields x (n-1) sent by each rank.
class ReportExchange {
 public:
  ReportExchange(comm::Communicator& world, Arena& arena);
  /// One report per world rank.
  std::span<const RankReport> exchange(const RankReport& mine);

 private:
  comm::Communicator* world_;
  Buffer in_buffer_, out_buffer_;
  Tensor in_, out_;
};

/// Sums and maxima over ranks.
struct StepTotals {
  double loss = 0;  ///< sum of losses / tokens
  double tokens = 0;
  double bubble_fraction = 0;
  double exposed_s = 0;                   ///< of the slowest rank
  double data_wait_s = 0;                 ///< of the slowest rank
  double sent_bytes = 0;                  ///< sum
  double live_bytes = 0, peak_bytes = 0;  ///< of the fullest rank
  Wishes wishes = {};                     ///< largest of each
};
/// bubble_fraction: mean over ranks of idle / span, where span is the forward-backward pass of the slowest rank and
/// idle is what a rank stood in pipeline receives plus span minus its own end; 0 without a pipeline. Ideal 1F1B: (p-1)
/// / (m+p-1).
StepTotals combine(std::span<const RankReport> reports, int pipeline);

}  // namespace triax::train

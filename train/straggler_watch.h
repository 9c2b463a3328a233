// Names ranks that are slower than their peers, by the time they spend on their own work.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/process_grid.h"
#include "train/step_report.h"

namespace triax::train {

/// A rank's own time is that of a step's ops without what it stood in collectives and receives, so that the ranks that
/// wait for a slow one are not slow themselves. Peers are the ranks of the same pipeline position, which do the same
/// work; where a position has one rank, all ranks. On cores that ranks share, own time holds what others took.
class StragglerWatch {
 public:
  /// Looks every `window` steps; names a rank whose mean own time is more than `factor` times the median of its peers.
  StragglerWatch(const comm::GridShape& shape, std::vector<std::string> hosts, int64_t window, double factor);
  /// After every step, with the reports of all ranks. Returns a line when a window ends and a rank is slow, else "".
  std::string add(int64_t iteration, std::span<const RankReport> reports);

 private:
  double peers_median(size_t rank, const std::vector<double>& mean_s) const;
  comm::GridShape shape_;
  std::vector<std::string> hosts_;  ///< of each rank
  int64_t window_;
  double factor_;
  int64_t steps_ = 0;
  std::vector<double> own_s_;  ///< sums over the window
};

}  // namespace triax::train

// What a trace says in numbers, and how two traces of one program differ.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/trace/timeline.h"

namespace triax::io {

struct RankSummary {
  int rank = 0;
  std::map<parallel::OpKind, int64_t> kind_ps;  ///< time in each kind of op
  int64_t busy_ps = 0;                          ///< F, I, W, B, R
  int64_t span_ps = 0;                          ///< first to last of those
  int64_t receive_ps = 0;                       ///< standing in receives
};

struct TraceSummary {
  int64_t end_ps = 0;
  int64_t span_ps = 0;         ///< longest of the ranks'
  double bubble_of_total = 0;  ///< 1 - busy / span, mean over ranks
  double bubble_of_ideal = 0;
  std::vector<RankSummary> ranks;
};
TraceSummary summarize(const Timeline& timeline);

/// One kind of op in both traces.
struct KindDifference {
  parallel::OpKind kind = parallel::OpKind::Forward;
  int64_t ops = 0;  ///< pairs
  double mean_a_ps = 0, mean_b_ps = 0;
  double worst_start_ps = 0;  ///< largest |start in b - start in a|
};

struct TraceDifference {
  std::vector<KindDifference> kinds;
  std::vector<std::string> only_a, only_b;  ///< "rank 1: 2F3", at most 10 each
  int64_t unmatched_a = 0, unmatched_b = 0;
  /// The pairs whose durations differ most, by |b - a|.
  struct Pair {
    int rank = 0;
    std::string name;
    int64_t duration_a_ps = 0, duration_b_ps = 0;
  };
  std::vector<Pair> worst;
  bool same_program = false;  ///< equal program hashes
};
/// Lines the traces up op by op: same rank, same name, same occurrence.
TraceDifference compare(const Timeline& a, const Timeline& b, size_t worst_pairs = 10);

}  // namespace triax::io

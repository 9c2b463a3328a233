// Collectives of one group over all ranks, by size and algorithm, in the manner of the nccl-tests: time, algorithm
// bandwidth, bus bandwidth, and whether the result was right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/process_grid.h"

namespace triax::bench {

/// Where the tensors lie: in memory that the ranks of a host share (buckets of a run do), or in ordinary memory.
enum class BufferPlace { Window, Heap };

struct CollectiveBench {
  std::vector<comm::Operation> ops{comm::Operation::AllReduce};  ///< AllReduce, ReduceScatter, AllGather
  std::vector<comm::Algorithm> algorithms{comm::Algorithm::Default, comm::Algorithm::Library};
  comm::SumOrder order = comm::SumOrder::Algorithm;
  int64_t least_bytes = 1024, most_bytes = int64_t{64} << 20;  ///< nccl-tests' size
  int64_t factor = 4;
  DType dtype = DType::Float32;
  BufferPlace place = BufferPlace::Window;
  int fake_nodes = 0;
  double timeout_s = 600;
  int64_t calls = 0;  ///< of a turn; 0: of about 16 MiB together, from 2 to 200
  int turns = 5;      ///< in each of which all algorithms come once
};

/// One size of one operation by one algorithm. Bandwidths in 1e9 bytes/s.
struct CollectiveRow {
  comm::Operation op;
  comm::Algorithm algorithm;
  int64_t size_bytes = 0;  ///< rounded down to whole elements of every rank
  int64_t elements = 0;
  double time_us = 0;       ///< of one call on the slowest rank: median of the turns
  double best_us = 0;       ///< of the fastest turn
  double algbw_gbps = 0;    ///< size / time
  double busbw_gbps = 0;    ///< algbw x 2(n-1)/n (all_reduce), (n-1)/n (the others)
  int64_t wrong = 0;        ///< elements that were not what they must be, on all ranks
  bool converted = false;   ///< sent bytes are the busbw factor's, not counted
  double inside_bytes = 0;  ///< sent by one call to ranks on the same node; all ranks together
  double across_bytes = 0;  ///< ... to ranks on other nodes
};

/// Collective. The algorithms take turns at every size, so that other load on the machine meets all alike. ConfigError
/// where an algorithm is impossible (shared memory across nodes) or a size holds no element.
std::vector<CollectiveRow> measure_collectives(comm::MpiSession& session, const CollectiveBench& bench);

}  // namespace triax::bench

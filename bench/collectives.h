// Collectives by size and algorithm, in the manner of the nccl-tests: time, algorithm bandwidth, bus bandwidth, in and
// out of place, and whether the result was right; and the groups of a layout that all talk at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/exchange.h"
#include "bench/timing.h"
#include "comm/device_groups.h"
#include "comm/process_grid.h"

namespace triax::bench {

/// Where the tensors lie: in memory that the ranks of a host share (buckets of a run do), or in ordinary memory.
enum class BufferPlace { Window, Heap };

/// Which ranks form a group: those of equal colour, rank mod N, rank / N or rank & N; all groups talk at once.
struct Split {
  enum class Kind { None, Mod, Div, And };
  Kind kind = Kind::None;
  int number = 1;
  int colour(int rank) const;
  /// "mod:8", "div:8", "and:7"; anything else: ConfigError.
  static Split parse(const std::string& text);
};

/// Sizes from `least` to `most`: times `factor`, or plus `step_bytes` where that is given.
struct Sizes {
  int64_t least_bytes = 1024, most_bytes = int64_t{64} << 20;
  int64_t factor = 4;
  int64_t step_bytes = 0;
  std::vector<int64_t> all() const;
};

/// Where a bench on GPUs gets its groups and its memory.
struct OnDevice {
  kernels::DiscreteDevice* device = nullptr;  ///< null: tensors lie in the host's memory
  comm::DeviceGroups* groups = nullptr;
  bool registered = false;  ///< memory that NCCL was told of (--use-nccl-ub)
  /// To be asked when all groups are made.
  MemoryProvider& memory() const { return registered ? groups->registered_memory() : device->memory(); }
};

struct CollectiveBench {
  std::vector<comm::Operation> ops{comm::Operation::AllReduce};
  /// On a device they and `order`, `place` and `fake_nodes` play no part: NCCL carries everything.
  std::vector<comm::Algorithm> algorithms{comm::Algorithm::Default, comm::Algorithm::Library};
  OnDevice on;
  comm::SumOrder order = comm::SumOrder::Algorithm;
  comm::ReduceOp reduce = comm::ReduceOp::Sum;
  Sizes sizes;
  DType dtype = DType::Float32;
  BufferPlace place = BufferPlace::Window;
  Split split;
  int fake_nodes = 0;
  double timeout_s = 600;
  int64_t calls = 0;   ///< of a turn; 0: of about 16 MiB together, from 2 to 200
  int64_t warmup = 1;  ///< calls before each turn that do not count
  int turns = 5;       ///< in each of which all algorithms and places come once, in random order
  bool check = true;
};

/// What was measured of one place; samples are single calls, each on the slowest rank of all. On the host by the clock
/// around the call; on a device by events on the stream that waits for the operation, calls given one behind the other,
/// from where the one before was done to where this one is.
struct PlaceTimes {
  Statistics time;
  int64_t wrong = -1;  ///< elements that were not what they must be, on all ranks; -1: not checked
  bool measured() const { return time.samples > 0; }
};

/// One size of one operation by one algorithm. Bandwidths in 1e9 bytes/s, from the median.
struct CollectiveRow {
  comm::Operation op;
  std::string algorithm;  ///< comm::name_of(Algorithm); "nccl" on a device
  comm::ReduceOp reduce = comm::ReduceOp::Sum;
  int ranks = 0;           ///< of the largest group
  int nodes = 1;           ///< over which it stands
  int64_t size_bytes = 0;  ///< rounded down to whole elements of every rank
  int64_t count = 0;       ///< nccl-tests': of one rank's part where there are parts
  PlaceTimes out_of_place = {}, in_place = {};
  bool converted = false;   ///< sent bytes are the busbw factor's, not counted
  double inside_bytes = 0;  ///< sent by one call to ranks on the same node; all ranks together
  double across_bytes = 0;  ///< ... to ranks on other nodes

  double algbw_gbps(const PlaceTimes& place) const;
  /// algbw x 2(n-1)/n (all_reduce), (n-1)/n (all_gather, reduce_scatter, all_to_all), 1 (the others).
  double busbw_gbps(const PlaceTimes& place) const;
  /// The place that training uses: in place where there is one.
  const PlaceTimes& training() const { return in_place.measured() ? in_place : out_of_place; }
};

/// Collective. sendrecv on a device goes as pipelines send: each direction on a communicator of its own.
/// The algorithms take turns at every size, so that other load on the machine meets all alike. ConfigError
/// where an algorithm is impossible (shared memory across nodes), a size holds no element, or a group has one rank.
std::vector<CollectiveRow> measure_collectives(comm::MpiSession& session, const CollectiveBench& bench);

/// One group of a layout, alone and while the others talk.
struct GroupRow {
  std::string group;  ///< "tp", "dp", "pp"
  comm::Operation op;
  int ranks = 0;
  int64_t size_bytes = 0;
  Statistics alone, together;
  double busbw_gbps(const Statistics& time) const;
};

/// Each named group of the grid runs its operation (pp: sendrecv) alone, then all of them at the same time: what a
/// shared link gives to each. Collective over the world. ConfigError for a group of one rank. On a device, whose groups
/// the grid must have, samples are means over a turn's calls, by events on the operation's own stream.
std::vector<GroupRow> measure_groups(comm::ProcessGrid& grid, const std::vector<std::string>& groups,
                                     const CollectiveBench& bench);

}  // namespace triax::bench

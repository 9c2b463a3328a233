// Time of a collective: measured where the machine's table has the group and the size, else by latency and bandwidth
// over the machine's levels of links.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "bench/hardware.h"

namespace triax::plan {

/// Where a group lies: its ranks over nodes (domains of the innermost link), and how many groups of the same kind use
/// the ports of one node at the same time.
struct GroupPlace {
  int ranks = 1;
  int nodes = 1;
  int sharers = 1;
  int apart = 1;  ///< devices from one rank to the next in a node; 1 where a node holds one rank or all nodes are one
  bool operator==(const GroupPlace&) const = default;
};

/// Ranks `stride` apart on nodes of `per_node` ranks, in a job of `world` ranks.
GroupPlace place_of(int ranks, int stride, int per_node, int world);

/// What is made monotone before interpolation. Bandwidth: a longer message is never slower per byte nor faster in all.
/// Time: only never faster in all; what outgrows a cache is slower per byte.
enum class Monotone { Bandwidth, Time };

/// Time over bytes through measured points, made monotone and joined by straight lines (a latency and a bandwidth of
/// their own). Below the first point the time is its own, beyond the last one the bandwidth is that of the last two.
class MeasuredCurve {
 public:
  /// Points in any order; of equal sizes the shortest time counts.
  explicit MeasuredCurve(std::vector<std::pair<double, double>> bytes_and_seconds,
                         Monotone monotone = Monotone::Bandwidth);
  double time_s(double bytes) const;
  double last_bytes() const { return bytes_.back(); }

 private:
  std::vector<double> bytes_, seconds_;
};

class CollectiveTimes {
 public:
  /// Throws ConfigError without links.
  explicit CollectiveTimes(const bench::Hardware& hardware);

  /// `bytes` is nccl-tests' size (all_gather: the output, reduce_scatter: the input). A group of one takes no time.
  ///   ring      base + steps * latency + k bytes / B, steps = 2 (n-1) or n-1, k = 2 (n-1)/n, (n-1)/n or 1
  ///   tree      base + 2 [(n/N - 1) inner + log2 N outer] + 2 bytes / (0.92 B)     all-reduce only
  /// B: the least of the inner link's and of a node's ports / sharers.
  double time_s(comm::Operation operation, const GroupPlace& place, double bytes) const;
  /// One message from device to device; `across`: between nodes, through 1/sharers of a node's ports at most.
  double message_s(bool across, double bytes, int sharers) const;
  /// Share of the compute speed that a collective over this place takes while both run.
  double contention(const GroupPlace& place) const;

  /// What the formula takes; a fit writes here.
  struct Level {
    double latency_s = 0, bytes_per_s = 0, ports = 0, contention = 0;
  };
  Level inner, outer;
  double base_s = 0;
  double port_share = 1;  ///< of a node's ports that a collective keeps busy; a single message takes one whole
  /// Devices under one PCIe switch, with the ports beside them; 0: every device has its own port.
  double devices_per_switch = 0;
  /// Of port_share, where a ring enters a node under one switch and leaves it under another: by the port that it came
  /// in by, through the host's bridges. 1: data goes over NVLink to a device beside the port first (NCCL from 2.12 on).
  double crossing_share = 1;
  double copy_s_per_byte = 0;    ///< of a rank's buffer through its own memory, beside the wire
  double fill_bytes = 0;         ///< what the buffers of a rank's channels hold; a longer message runs full
  double fill_s_per_byte = 0;    ///< more for each byte of a message that does not run full
  double half_bytes = 0;         ///< of a rank's share at which the inner link reaches half its bandwidth
  double sharp_bytes_per_s = 0;  ///< of all-reduce inside one node by the switch; 0: none

 private:
  double bandwidth(const GroupPlace& place) const;
  double by_formula(comm::Operation operation, const GroupPlace& place, double bytes) const;
  using Key = std::tuple<comm::Operation, int, int>;
  std::map<Key, MeasuredCurve> measured_;
  int devices_per_node_ = 1;
};

}  // namespace triax::plan

// What is known of this machine without timing much: cores, caches, clock, and the peaks that follow.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace triax::bench {

struct Machine {
  std::string cpu;  ///< model name
  int packages = 0, numa_nodes = 0, cores = 0, processing_units = 0;
  int allowed = 0;  ///< processing units that this process may use
  int64_t memory_bytes = 0;
  int64_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0;  ///< of one cache; 0: none
  std::string vectors;                               ///< "avx512", "avx2", "baseline"
  bool bf16 = false;                                 ///< instructions that multiply bf16
  double clock_hz = 0;                               ///< measured: dependent additions, one per cycle
};

/// Reads hwloc and /proc/cpuinfo and measures the clock for some milliseconds. RunTimeError where hwloc cannot.
Machine this_machine();

/// fp32 FLOP per cycle of one core: two multiply-add units of the vector width (AMD before Zen 5 runs 512 bits in two
/// halves). What the name of the processor does not tell is assumed.
int flops_per_cycle(const Machine& machine);
/// FLOP/s of one core at the measured clock; 16-bit inputs double it where there are instructions for them, fp64
/// halves.
double core_peak_flops(const Machine& machine, int bytes_of_type);

/// Threads of a rank: OMP_NUM_THREADS, else the processing units allowed shared by the ranks of the host (as `train`).
int threads_of_rank(int local_ranks);

/// For Hardware::environment: cpu, cores, threads, libraries, date, versions.
std::map<std::string, std::string> environment_of(const Machine& machine, int ranks, int threads);

}  // namespace triax::bench

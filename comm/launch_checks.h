// What can be wrong with how a job was started: pure functions of what every rank tells of itself, so that each message
// has a test. `triax doctor` gathers the facts and prints the findings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace triax::comm {

/// One rank's surroundings. A plain struct, so that it travels as bytes.
struct LaunchFacts {
  char host[64];
  char cpus[64];           ///< processing units it may run on, "0-3,8"
  int32_t num_cpus;        ///< how many these are
  int32_t numa;            ///< node that holds them all; -1: several
  char device[80];         ///< "cpu", "none", or what tells GPUs of a node apart: "GPU-5f3a...", "3"
  char interface[48];      ///< first that is up and no loopback, "ib0 10.1.0.7"; empty: none
  char build[96];          ///< version and commit
  char libraries[256];     ///< versions of MPI and HDF5 as loaded
  int64_t locked_memory;   ///< RLIMIT_MEMLOCK in bytes; -1: unlimited
  int64_t open_files;      ///< RLIMIT_NOFILE
  double clock_s;          ///< real time at a common instant
  int32_t sees_directory;  ///< the file that rank 0 made in the directory is there
  int32_t lock_errno;      ///< of flock() on a file in the directory; 0: works
  int32_t hdf5_locks;      ///< HDF5 will lock files (HDF5_USE_FILE_LOCKING)
  char device_fault[512];  ///< why a run would get no device, and the remedy; empty: it gets one
};

enum class Severity { Warning, Fault };
struct Finding {
  Severity severity = Severity::Fault;
  std::string text;  ///< what is wrong, where; and the remedy
  bool operator==(const Finding&) const = default;
};

/// Binding, GPUs, interfaces, directory, limits, locks, clocks, versions. facts[r]: of world rank r; nodes[r]: its
/// node. `clock_spread_s`: how far apart the instants of clock_s may have been.
std::vector<Finding> check_launch(std::span<const LaunchFacts> facts, std::span<const int> nodes,
                                  const std::string& directory, double clock_spread_s);

}  // namespace triax::comm

#include "comm/launch_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "comm/group_nodes.h"

namespace triax::comm {
namespace {

struct Job {
  std::span<const LaunchFacts> facts;
  std::span<const int> nodes;
  std::string directory;
  std::vector<Finding>* findings;

  const LaunchFacts& of(int rank) const { return facts[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(facts.size()); }
  bool several_nodes() const { return std::set<int>(nodes.begin(), nodes.end()).size() > 1; }
  void warn(std::string text) const { findings->push_back({Severity::Warning, std::move(text)}); }
  void fail(std::string text) const { findings->push_back({Severity::Fault, std::move(text)}); }
  /// The first rank of each node.
  std::vector<int> leaders() const {
    std::vector<int> first;
    std::set<int> seen;
    for (int r = 0; r < size(); ++r) {
      if (seen.insert(nodes[static_cast<size_t>(r)]).second) first.push_back(r);
    }
    return first;
  }
  /// Ranks of a node with the same text.
  std::map<std::pair<int, std::string>, std::vector<int>> alike(
      const std::function<std::string(const LaunchFacts&)>& text) const {
    std::map<std::pair<int, std::string>, std::vector<int>> groups;
    for (int r = 0; r < size(); ++r) groups[{nodes[static_cast<size_t>(r)], text(of(r))}].push_back(r);
    return groups;
  }
};

void check_binding(const Job& job) {
  for (const auto& [key, ranks] : job.alike([](const LaunchFacts& f) { return std::string(f.cpus); })) {
    const LaunchFacts& one = job.of(ranks.front());
    if (static_cast<int>(ranks.size()) <= one.num_cpus || ranks.size() < 2) continue;
    job.warn(
        fmt::format("ranks {} on {} share {} core(s) {}: they take turns; srun --cpus-per-task=N --cpu-bind=cores, "
                    "mpiexec -bind-to "
                    "core, or fewer ranks on the node",
                    ranks_text(ranks), one.host, one.num_cpus, one.cpus));
  }
}

void check_devices(const Job& job) {
  for (const auto& [key, ranks] : job.alike([](const LaunchFacts& f) { return std::string(f.device_fault); })) {
    if (key.second.empty()) continue;
    job.fail(fmt::format("rank{} on {}: {}",
                         ranks.size() == 1 ? fmt::format(" {}", ranks.front()) : "s " + ranks_text(ranks),
                         job.of(ranks.front()).host, key.second));
  }
  for (const auto& [key, ranks] : job.alike([](const LaunchFacts& f) { return std::string(f.device); })) {
    if (key.second == "cpu" || key.second == "none" || ranks.size() < 2) continue;
    job.fail(
        fmt::format("ranks {} on {} use one GPU ({}): as many ranks as GPUs on every node; sbatch --ntasks-per-node=N "
                    "--gpus-per-node=N, srun --gpu-bind=none",
                    ranks_text(ranks), job.of(ranks.front()).host, key.second));
  }
}

void check_network(const Job& job) {
  if (!job.several_nodes()) return;
  std::map<std::string, int> names;
  for (const int leader : job.leaders()) {
    const std::string interface = job.of(leader).interface;
    if (interface.empty()) {
      job.fail(fmt::format("{} has no network interface that is up but the loopback: other nodes cannot reach it",
                           job.of(leader).host));
      continue;
    }
    names.try_emplace(interface.substr(0, interface.find(' ')), leader);
  }
  if (names.size() < 2) return;
  std::string list;
  for (const auto& [name, leader] : names)
    list += fmt::format("{}{} on {}", list.empty() ? "" : ", ", name, job.of(leader).host);
  job.warn(
      fmt::format("nodes have interfaces of different names ({}): NCCL_SOCKET_IFNAME and UCX_NET_DEVICES must name "
                  "one that all have",
                  list));
}

void check_directory(const Job& job) {
  for (const int leader : job.leaders()) {
    const LaunchFacts& f = job.of(leader);
    if (f.sees_directory == 0) {
      job.fail(
          fmt::format("{} does not see what rank 0 writes in {}: --run-dir, --save and data must lie on a file system "
                      "that all nodes mount (TRIAX_SCRATCH in jobs/site.sh)",
                      f.host, job.directory));
    } else if (f.lock_errno != 0 && f.hdf5_locks != 0) {
      job.fail(
          fmt::format("{}: {} cannot be locked ({}), and HDF5 locks the files that it opens: export "
                      "HDF5_USE_FILE_LOCKING=FALSE",
                      f.host, job.directory, std::strerror(f.lock_errno)));
    }
  }
}

void check_limits(const Job& job) {
  constexpr int64_t kLocked = int64_t{64} << 20;
  constexpr int64_t kFiles = 1024;
  for (const int leader : job.leaders()) {
    const LaunchFacts& f = job.of(leader);
    if (job.several_nodes() && f.locked_memory >= 0 && f.locked_memory < kLocked) {
      job.warn(
          fmt::format("{}: at most {} KiB of memory can be locked (ulimit -l): InfiniBand cannot register buffers; "
                      "unlimited in /etc/security/limits.d, or PropagateResourceLimitsExcept=MEMLOCK in slurm.conf",
                      f.host, f.locked_memory / 1024));
    }
    if (f.open_files < kFiles) {
      job.warn(
          fmt::format("{}: a process may open {} files (ulimit -n): sockets to all ranks and shards of checkpoints "
                      "need more; ulimit -n 65536",
                      f.host, f.open_files));
    }
  }
}

void check_clocks(const Job& job, double spread_s) {
  const double bound = 1 + spread_s;
  for (const int leader : job.leaders()) {
    const double ahead = job.of(leader).clock_s - job.of(0).clock_s;
    if (std::abs(ahead) <= bound) continue;
    job.warn(
        fmt::format("the clock of {} is {:.1f} s {} that of {}: times in logs and traces cannot be compared; start "
                    "chronyd or ntpd",
                    job.of(leader).host, std::abs(ahead), ahead > 0 ? "ahead of" : "behind", job.of(0).host));
  }
}

void check_versions(const Job& job) {
  for (int r = 1; r < job.size(); ++r) {
    const LaunchFacts& f = job.of(r);
    const bool other = std::strcmp(f.build, job.of(0).build) != 0;
    if (!other && std::strcmp(f.libraries, job.of(0).libraries) == 0) continue;
    job.fail(fmt::format("rank {} ({}) runs {}, rank 0 ({}) runs {}: the same binary and the same modules on all nodes",
                         r, f.host, other ? f.build : f.libraries, job.of(0).host,
                         other ? job.of(0).build : job.of(0).libraries));
    return;  // one is enough
  }
}

}  // namespace

std::vector<Finding> check_launch(std::span<const LaunchFacts> facts, std::span<const int> nodes,
                                  const std::string& directory, double clock_spread_s) {
  std::vector<Finding> findings;
  const Job job{facts, nodes, directory, &findings};
  check_versions(job);
  check_devices(job);
  check_binding(job);
  check_network(job);
  check_directory(job);
  check_limits(job);
  check_clocks(job, clock_spread_s);
  return findings;
}

}  // namespace triax::comm

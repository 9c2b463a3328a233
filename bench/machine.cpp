#include "bench/machine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "base/clock.h"
#include "base/version.h"
#include "bench/topology.h"

namespace triax::bench {
namespace {

/// Value of the first line "key : value" of /proc/cpuinfo; empty when there is none.
std::string cpuinfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.rfind(key, 0) != 0) continue;
    return line.substr(std::min(colon + 2, line.size()));
  }
  return "";
}

bool has_flag(const std::string& flags, const std::string& flag) {
  return (" " + flags + " ").find(" " + flag + " ") != std::string::npos;
}

int64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type) {
  const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
  return cache != nullptr ? static_cast<int64_t>(cache->attr->cache.size) : 0;
}

/// Additions that wait for each other run at one per cycle.
double measure_clock() {
  constexpr int64_t kRounds = 1 << 20;
  double best_s = 1;
  for (int attempt = 0; attempt < 8; ++attempt) {
    uint64_t x = 1;
    const Stopwatch watch;
    for (int64_t i = 0; i < kRounds; ++i) {
      for (int j = 0; j < 8; ++j) {
        x += 3;
        asm volatile("" : "+r"(x));  // the compiler may not join the additions
      }
    }
    best_s = std::min(best_s, watch.elapsed_s());
  }
  return 8.0 * kRounds / best_s;
}

int allowed_units() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof(allowed), &allowed);
  return std::max(1, CPU_COUNT(&allowed));
}

}  // namespace

Machine this_machine() {
  const Topology topology = load_topology();
  const auto count = [&](hwloc_obj_type_t type) { return std::max(hwloc_get_nbobjs_by_type(topology.get(), type), 0); };
  Machine m;
  m.cpu = cpuinfo("model name");
  m.packages = count(HWLOC_OBJ_PACKAGE);
  m.numa_nodes = count(HWLOC_OBJ_NUMANODE);
  m.cores = count(HWLOC_OBJ_CORE);
  m.processing_units = count(HWLOC_OBJ_PU);
  m.allowed = allowed_units();
  m.memory_bytes = static_cast<int64_t>(hwloc_get_root_obj(topology.get())->total_memory);
  m.l1_bytes = cache_bytes(topology.get(), HWLOC_OBJ_L1CACHE);
  m.l2_bytes = cache_bytes(topology.get(), HWLOC_OBJ_L2CACHE);
  m.l3_bytes = cache_bytes(topology.get(), HWLOC_OBJ_L3CACHE);
  const std::string flags = cpuinfo("flags");
  m.vectors = has_flag(flags, "avx512f") ? "avx512" : has_flag(flags, "avx2") ? "avx2" : "baseline";
  m.bf16 = has_flag(flags, "avx512_bf16") || has_flag(flags, "amx_bf16");
  m.clock_hz = measure_clock();
  return m;
}

int flops_per_cycle(const Machine& machine) {
  const int family = std::atoi(cpuinfo("cpu family").c_str());
  const bool halves = machine.cpu.find("AMD") != std::string::npos && family < 26;
  if (machine.vectors == "avx512") return halves ? 32 : 64;
  return machine.vectors == "avx2" ? 32 : 8;
}

double core_peak_flops(const Machine& machine, int bytes_of_type) {
  const double fp32 = machine.clock_hz * flops_per_cycle(machine);
  if (bytes_of_type == 8) return fp32 / 2;
  return bytes_of_type == 2 && machine.bf16 ? 2 * fp32 : fp32;
}

int threads_of_rank(int local_ranks) {
  const char* given = std::getenv("OMP_NUM_THREADS");
  const int threads = given != nullptr ? std::atoi(given) : 0;
  return threads > 0 ? threads : std::max(1, allowed_units() / std::max(1, local_ranks));
}

std::map<std::string, std::string> environment_of(const Machine& m, int ranks, int threads) {
  std::map<std::string, std::string> all;
  all["cpu"] = m.cpu;
  all["cores"] = std::to_string(m.cores);
  all["processing_units"] = std::to_string(m.processing_units);
  all["numa_nodes"] = std::to_string(m.numa_nodes);
  all["vectors"] = m.vectors + (m.bf16 ? ", bf16" : "");
  all["clock_ghz"] = fmt::format("{:.2f}", m.clock_hz / 1e9);
  all["l2_bytes"] = std::to_string(m.l2_bytes);
  all["l3_bytes"] = std::to_string(m.l3_bytes);
  all["ranks"] = std::to_string(ranks);
  all["threads_per_rank"] = std::to_string(threads);
  all["date"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  for (const auto& [name, value] : build_info_rows()) all["triax " + name] = value;
  return all;
}

}  // namespace triax::bench

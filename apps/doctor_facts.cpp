#include "apps/doctor_facts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <hwloc.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <net/if.h>
#include <sys/resource.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "apps/bound_cpus.h"
#include "base/handle.h"
#include "base/version.h"
#include "bench/topology.h"

namespace triax::apps {
namespace {

template <size_t N>
void set(char (&to)[N], const std::string& from) {
  std::snprintf(to, N, "%s", from.c_str());
}

void add_cores(comm::LaunchFacts& facts) {
  const bench::Topology topology = bench::load_topology();
  const Handle<BitmapPolicy> cpus = bound_cpus(topology.get());
  const Handle<BitmapPolicy> memory(hwloc_bitmap_alloc());
  hwloc_bitmap_list_snprintf(facts.cpus, sizeof facts.cpus, cpus.get());
  facts.num_cpus = hwloc_bitmap_weight(cpus.get());
  hwloc_cpuset_to_nodeset(topology.get(), cpus.get(), memory.get());
  facts.numa = hwloc_bitmap_weight(memory.get()) == 1 ? hwloc_bitmap_first(memory.get()) : -1;
}

std::vector<std::string> visible_gpus() {
  std::vector<std::string> gpus;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr) {
    std::istringstream words(visible);
    for (std::string word; std::getline(words, word, ',');) gpus.push_back(word);
    return gpus;
  }
  for (int i = 0; std::filesystem::exists(fmt::format("/dev/nvidia{}", i)); ++i) gpus.push_back(std::to_string(i));
  return gpus;
}

std::string device_text(const std::string& device, int local_rank) {
  if (device == "cpu") return device;
  const std::vector<std::string> gpus = visible_gpus();
  if (gpus.empty()) return "none";
  return gpus[static_cast<size_t>(local_rank) % gpus.size()];
}

std::string interface_text() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::string found;
  for (const ifaddrs* one = list; one != nullptr && found.empty(); one = one->ifa_next) {
    const bool up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!up || one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    std::array<char, INET_ADDRSTRLEN> address{};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, address.data(), address.size());
    found = fmt::format("{} {}", one->ifa_name, address.data());
  }
  freeifaddrs(list);
  return found;
}

std::string libraries_text() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  std::istringstream lines(text.data());
  std::string first, label, version;
  std::getline(lines, first);
  std::istringstream(first) >> label >> label >> version;  // MPICH: "MPICH Version:	4.0.2"
  if (!first.starts_with("MPICH")) version = first.substr(0, 80);
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}{}, HDF5 {}.{}.{}", first.starts_with("MPICH") ? "MPICH " : "", version, major, minor, release);
}

int64_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace

comm::LaunchFacts launch_facts(const comm::MpiSession& session, const std::string& device,
                               const std::string& device_fault) {
  comm::LaunchFacts facts = {};
  set(facts.host, session.host());
  add_cores(facts);
  set(facts.device, device_text(device, session.local_rank()));
  set(facts.device_fault, device_fault);
  set(facts.interface, interface_text());
  const BuildInfo build = build_info();
  set(facts.build, fmt::format("{} ({})", build.version, build.commit));
  set(facts.libraries, libraries_text());
  facts.locked_memory = limit_of(RLIMIT_MEMLOCK);
  const int64_t files = limit_of(RLIMIT_NOFILE);
  facts.open_files = files < 0 ? INT64_MAX : files;
  const char* locking = std::getenv("HDF5_USE_FILE_LOCKING");
  facts.hdf5_locks = locking != nullptr && std::string(locking) == "FALSE" ? 0 : 1;
  return facts;
}

}  // namespace triax::apps
